import torch, time, sys
torch.manual_seed(0); torch.set_num_threads(1)
class Block(torch.nn.Module):
    def __init__(s,d=64):
        super().__init__(); s.a=torch.nn.Linear(d,d); s.b=torch.nn.Linear(d,d)
    def forward(s,x): return x+s.b(torch.nn.functional.gelu(s.a(x)))
class Net(torch.nn.Module):
    def __init__(s):
        super().__init__(); s.emb=torch.nn.Embedding(100,64); s.blocks=torch.nn.ModuleList([Block() for _ in range(4)]); s.head=torch.nn.Linear(64,100)
    def forward(s,t):
        x=s.emb(t)
        for b in s.blocks: x=b(x)
        return s.head(x)
net=Net()
for b in net.blocks: b.compile()
opt=torch.optim.AdamW(net.parameters())
N=int(sys.argv[1]) if len(sys.argv)>1 else 200
mode=sys.argv[2] if len(sys.argv)>2 else "train"
t0=time.perf_counter()
for i in range(N):
    t=torch.randint(0,100,(8,32))
    if mode=="train":
        loss=torch.nn.functional.cross_entropy(net(t).flatten(0,1), t.flatten())
        opt.zero_grad(); loss.backward()
        torch.nn.utils.clip_grad_norm_(net.parameters(),1.0)
        opt.step()
    else:
        with torch.no_grad(): net(t).sum().item()
    if i==3: t0=time.perf_counter()
print("mean", (time.perf_counter()-t0)/(N-4) if N > 4 else None)
