import torch
torch._dynamo.config.capture_scalar_outputs=True
torch._dynamo.config.capture_dynamic_output_shape_ops=True
@torch.compile(fullgraph=True)
def f(x,n):
    y=x.nonzero()
    return y.sum(), torch.zeros(n.item())+1, x[:n.item()].cos()
with torch.no_grad(): f(torch.randn(64), torch.tensor(5))
