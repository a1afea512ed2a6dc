import torch
import torch._inductor.config as c
c.cpp_wrapper=True
lin=torch.nn.Linear(16,8)
f=torch.compile(lambda x: torch.softmax(lin(x),-1))
with torch.no_grad(): f(torch.randn(4,16))
