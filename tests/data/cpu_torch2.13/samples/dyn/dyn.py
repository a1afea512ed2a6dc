import torch
torch.manual_seed(0)
lin=torch.nn.Linear(16,8)
@torch.compile(dynamic=True)
def f(x, k):
    return torch.softmax(lin(x) * k, -1).sum(0)
x=torch.randn(12,16,requires_grad=True)
f(x, 3).sum().backward()
