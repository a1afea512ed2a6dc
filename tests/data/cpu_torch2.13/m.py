import torch, torch.nn as nn
torch.manual_seed(0)
class M(nn.Module):
    def __init__(s):
        super().__init__()
        s.c=nn.Conv2d(3,16,3,padding=1); s.b=nn.BatchNorm2d(16); s.l=nn.Linear(16,10); s.e=nn.Embedding(100,16)
    def forward(s,x,i):
        y=torch.relu(s.b(s.c(x))).mean((2,3))
        return s.l(y+s.e(i).sum(1))
m=M(); f=torch.compile(m)
x=torch.randn(8,3,64,64); i=torch.randint(0,100,(8,5))
opt=torch.optim.SGD(m.parameters(),0.1)
for _ in range(3):
    loss=f(x,i).logsumexp(1).mean(); loss.backward(); opt.step()
m.eval()
with torch.no_grad(): f(x,i)
print("done")
