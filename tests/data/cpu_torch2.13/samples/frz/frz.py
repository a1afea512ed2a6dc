import torch
import torch._inductor.config as c
c.freezing=True
m=torch.nn.Sequential(torch.nn.Conv2d(3,8,3),torch.nn.ReLU(),torch.nn.Flatten(),torch.nn.Linear(8*36,64)).eval()
f=torch.compile(m)
with torch.no_grad(): f(torch.randn(2,3,8,8))
