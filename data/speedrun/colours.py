"""No network that sees shapes, and no discriminator: the goal is one of colour, so a map of colours can reach it.

The sliced Wasserstein distance says how far its oranges' colours are from those of oranges: seen along any direction,
the sorted values of both should be equal (Bonneel et al., 2015, section 3).
"""

import torch
from torch import Tensor, nn

from labcourse.speedrun import Entry
from labkit.models.model import Model
from labkit.networks.layers import Generator

STEPS, ROUNDS, RATE = 10, 30, 3e-2
WIDTH, PICTURES, PIXELS, DIRECTIONS = 64, 600, 2048, 16


class Colours(Generator):
    """Every pixel by itself: (B, 3, H, W) in and out."""

    size_multiple, min_size = 1, 1

    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Conv2d(3, WIDTH, 1), nn.ReLU(), nn.Conv2d(WIDTH, 3, 1))
        nn.init.zeros_(self.layers[2].bias)
        with torch.no_grad():
            self.layers[2].weight.mul_(0.1)

    def forward(self, picture: Tensor) -> Tensor:
        return picture + self.layers(picture)


class OneWay(Model):
    """From A to B, and nothing that judges."""

    kind, loss_names, directions = "OneWay", (), ("AtoB",)
    settings, pools, parts, size_multiple, min_size = {}, {}, "a map of colours", 1, 1

    def __init__(self):
        super().__init__()
        self.G = Colours()

    def translator(self, direction: str = "AtoB") -> Generator:
        return self.G


def some_pixels(pictures: Tensor) -> Tensor:
    """(3, PIXELS)"""
    n, _, height, width = pictures.shape
    return pictures[torch.randint(n, (PIXELS,)), :, torch.randint(height, (PIXELS,)), torch.randint(width, (PIXELS,))].T


def entry(device: str) -> Entry:
    model = OneWay().to(device)
    adam = torch.optim.Adam(model.G.parameters(), RATE, betas=(0.5, 0.99), fused=True)
    falling = torch.optim.lr_scheduler.LinearLR(adam, 1, 0, STEPS * ROUNDS)

    def step(real_a: Tensor, real_b: Tensor) -> None:
        for _ in range(ROUNDS):
            fake, real = model.G(some_pixels(real_a)[None, ..., None])[0, ..., 0], some_pixels(real_b)
            directions = nn.functional.normalize(torch.randn(DIRECTIONS, 3, device=device))
            distance = ((directions @ fake).sort().values - (directions @ real).sort().values).abs().mean()
            adam.zero_grad()
            distance.backward()
            adam.step()
            falling.step()

    return Entry(model, step, STEPS, batch_size=PICTURES, pictures=PICTURES)
