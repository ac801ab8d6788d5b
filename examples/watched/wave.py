"""Learns to continue a sine wave, one value after the other: python wave.py [STEPS]"""

import sys

import torch
from torch import nn

BATCH, LENGTH = 4, 30

torch.manual_seed(0)
steps = int(sys.argv[1]) if sys.argv[1:] else 30
cell, readout = nn.GRUCell(1, 16), nn.Linear(16, 1)
optimizer = torch.optim.SGD([*cell.parameters(), *readout.parameters()], lr=0.1)
for _ in range(steps):
    wave = torch.sin(6 * torch.rand(BATCH, 1) + torch.arange(LENGTH + 1) / 5)
    state, loss = torch.zeros(BATCH, 16), torch.tensor(0.0)
    for time in range(LENGTH):
        state = cell(wave[:, time : time + 1], state)
        loss = loss + (readout(state) - wave[:, time + 1 : time + 2]).square().mean() / LENGTH
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
print(f"loss {loss:.3f}")
