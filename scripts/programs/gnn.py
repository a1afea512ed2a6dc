"""torch_geometric: GraphSAGE learns on graphs of nine sizes, and is compiled for each of them."""

from __future__ import annotations

import os

import torch
import torch._dynamo
import torch.nn.functional as F
from stopwatch import DEVICE, Laps
from torch import Tensor, nn
from torch_geometric.data import Data
from torch_geometric.nn import SAGEConv

SMALL = bool(os.environ.get("SMALL"))
SIZES, NODES, DEGREE, WIDTH, CLASSES, EPOCHS = (3, 50, 4, 16, 4, 12) if SMALL else (9, 10_000, 16, 256, 40, 25)


class Network(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = SAGEConv(WIDTH, WIDTH), SAGEConv(WIDTH, WIDTH, aggr="max")
        self.head = SAGEConv(WIDTH, CLASSES)

    def forward(self, x: Tensor, edges: Tensor) -> Tensor:
        x = F.relu(self.first(x, edges))
        x = F.relu(self.second(x, edges))
        return self.head(x, edges)


def random_graph(nodes: int) -> Data:
    return Data(
        x=torch.randn(nodes, WIDTH),
        edge_index=torch.randint(nodes, (2, DEGREE * nodes)),
        y=torch.randint(CLASSES, (nodes,)),
    )


def main() -> None:
    torch.manual_seed(0)
    torch._dynamo.config.recompile_limit = 2 * SIZES
    graphs = [random_graph(NODES * (number + 1)).to(DEVICE) for number in range(SIZES)]
    model = Network().to(DEVICE)
    compiled = torch.compile(model, dynamic=False)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    laps = Laps("step", EPOCHS * SIZES)
    for epoch in range(EPOCHS):
        total = 0.0
        for number in torch.randperm(SIZES).tolist():
            graph = graphs[number]
            loss = F.cross_entropy(compiled(graph.x, graph.edge_index), graph.y)
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            total += loss.detach()
            laps.end(f"{graph.num_nodes} nodes")
        print(f"epoch {epoch}: loss {float(total) / SIZES:.4f}")
    laps.finish()


if __name__ == "__main__":
    main()
