import torch
def t(x): return x.sin()@x
def e(x): return x.cos()+1
@torch.compile(fullgraph=True)
def f(p,x): return torch.cond(p.sum()>0,t,e,(x,))*2
with torch.no_grad(): f(torch.randn(3),torch.randn(8,8))
