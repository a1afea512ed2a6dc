import torch
def g(x):
    y = x.cos()
    torch._dynamo.graph_break()
    return y.sin()
@torch.compile
def f(x, flag):
    y = g(x) * 2
    print("hello")
    if y.sum() > 0:
        y = y + 1
    return y * (2 if flag else 3)
@torch.compile(dynamic=False)
def h(x): return x.exp().sum()
x=torch.randn(8,8)
f(x,True); f(x,False); h(x); h(torch.randn(9,9)); h(torch.randn(10,9))
