"""The same from fewer pictures, since each has to be painted."""

import torch
from torch import Tensor, nn

from labcourse.speedrun import Entry
from labkit.models.model import Model
from labkit.networks.layers import Generator

STEPS, ROUNDS, RATE = 10, 30, 3e-2
WIDTH, PICTURES, PIXELS, DIRECTIONS = 64, 200, 2048, 16


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
    weights = list(model.G.parameters())
    means, squares = ([torch.zeros_like(weight) for weight in weights] for _ in range(2))
    done = 0

    def adam(distance: Tensor) -> None:
        """One update, at a rate that falls to 0 (Kingma and Ba, 2015, algorithm 1)."""
        nonlocal done
        rate, done = RATE * (1 - done / (STEPS * ROUNDS)), done + 1
        with torch.no_grad():
            for weight, slope, mean, square in zip(
                weights, torch.autograd.grad(distance, weights), means, squares, strict=True
            ):
                mean.lerp_(slope, 0.5)
                square.lerp_(slope**2, 0.01)
                weight -= rate * mean / (1 - 0.5**done) / (square / (1 - 0.99**done)).sqrt().add(1e-8)

    def step(real_a: Tensor, real_b: Tensor) -> None:
        for _ in range(ROUNDS):
            fake, real = model.G(some_pixels(real_a)[None, ..., None])[0, ..., 0], some_pixels(real_b)
            directions = nn.functional.normalize(torch.randn(DIRECTIONS, 3, device=device))
            adam(((directions @ fake).sort().values - (directions @ real).sort().values).abs().mean())

    return Entry(model, step, STEPS, batch_size=PICTURES, pictures=PICTURES)
