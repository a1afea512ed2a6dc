import torch
emb=torch.nn.Embedding(50,8)
@torch.compile
def f(i,v,s):
    e=emb(i)
    z,ix=torch.sort(s,dim=0,stable=True)
    a=torch.zeros(50,8).index_put((i.flatten(),),v,accumulate=True)
    u=torch.topk(s,3,dim=0)[0]
    b=torch.zeros(50,8).scatter_reduce(0,i.flatten()[:,None].expand(-1,8),v,'amax')
    c=torch.cumsum(s,0)
    q=torch.nn.functional.scaled_dot_product_attention(e[None],e[None],e[None])
    return (e.sum()+z.sum()+a.sum()+u.sum()+b.sum()+c.sum()+q.sum(), torch.randn(5), torch.bmm(e, e.mT), torch.fft.fft(s.flatten()).abs())
i=torch.randint(0,50,(4,6)); v=torch.randn(24,8,requires_grad=True); s=torch.randn(3000,4,requires_grad=True)
o=f(i,v,s); (o[0]+o[2].sum()+o[3].sum()).backward()
