import torch
ps=[torch.nn.Parameter(torch.randn(7,i+3)) for i in range(3)]
for p in ps: p.grad=torch.randn_like(p)
o=torch.optim.Adam(ps)
@torch.compile(fullgraph=False)
def step(): o.step()
step(); step()
