"""Learns to tell discs from squares, in pictures drawn on the way: python shapes.py [STEPS]"""

import sys

import torch
from PIL import Image, ImageDraw
from torch import nn
from torch.utils.data import DataLoader, Dataset
from torchvision.transforms.functional import to_tensor

BATCH, SIDE = 8, 256


class Shapes(Dataset):
    """An orange disc or square on noise, with its label."""

    def __init__(self, count: int) -> None:
        self.count = count

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        label = index % 2
        picture = Image.effect_noise((SIDE, SIDE), 60).convert("RGB")
        draw = ImageDraw.Draw(picture)
        (draw.ellipse if label else draw.rectangle)((SIDE // 4, SIDE // 4, SIDE // 2, SIDE // 2), fill="orange")
        return to_tensor(picture.resize((32, 32))), label


torch.manual_seed(0)
steps = int(sys.argv[1]) if sys.argv[1:] else 30
net = nn.Sequential(
    *(nn.Conv2d(3, 16, 3, stride=2), nn.ReLU(), nn.Conv2d(16, 32, 3, stride=2), nn.ReLU()),
    *(nn.Flatten(), nn.LazyLinear(2)),
)
net(torch.zeros(1, 3, 32, 32))
optimizer = torch.optim.Adam(net.parameters())
for pictures, labels in DataLoader(Shapes(steps * BATCH), batch_size=BATCH, shuffle=True):
    loss = nn.functional.cross_entropy(net(pictures), labels)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
print(f"loss {loss:.3f}")
