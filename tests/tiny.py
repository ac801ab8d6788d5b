"""The smallest networks that a test trains, and small pictures in folders."""

import csv

import numpy as np
import pytest
import torch
from PIL import Image
from torch import nn

import labkit
from labkit.networks import ResnetGenerator

TINY = dict(generator="resnet_3blocks", discriminator="n_layers", n_layers=2, ngf=4, ndf=4)


def noisy_pictures(folder, sizes, suffix="png", **options):
    """Writes pictures of these (height, width) into each of the folders in `folder`, which is returned."""
    random = np.random.default_rng(0)
    for name, each in sizes.items():
        (folder / name).mkdir(parents=True, exist_ok=True)
        for number, size in enumerate(each):
            pixels = random.integers(0, 256, (*size, 3), dtype=np.uint8)
            Image.fromarray(pixels).save(folder / name / f"{number}.{suffix}", **options)
    return folder


def assert_close(losses, right, tolerance, where):
    """Compares the losses of a step with the right ones, by name."""
    for name, loss in right.items():
        assert float(losses[name]) == pytest.approx(float(loss), rel=tolerance), (name, where)


def one_block(norm):
    """A ResNet of one block, always with the same weights."""
    torch.manual_seed(0)
    return ResnetGenerator(1, 4, norm)


def album_of(folder, n, height, width, places=("trainA", "trainB")):
    """A folder with so many pictures of noise in each of its folders, always the same."""
    return noisy_pictures(folder, dict.fromkeys(places, n * [(height, width)]))


class EachWeight(torch.optim.Optimizer):
    """The frame of an optimiser as researchers write them: `learn(weight, state, lr)` for each weight."""

    def __init__(self, weights, lr):
        super().__init__(weights, {"lr": lr})

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            for weight in group["params"]:
                self.learn(weight, self.state[weight], group["lr"])


class TooMuch:
    """Part of a step that has no memory for batches larger than `limit`."""

    limit = 2

    def losses(self, player, batch):
        if player == "discriminators" and len(batch["real_a"]) > self.limit:
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 35 GiB.")
        return super().losses(player, batch)


def rows_of(file):
    """The rows of a file of comma-separated values, each by the names of its columns."""
    with open(file, newline="") as opened:
        return list(csv.DictReader(opened))


def one_generator(**settings):
    """A tiny DeviationGAN, always with the same weights; keywords override its settings."""
    torch.manual_seed(0)
    return labkit.DeviationGAN(**{"ngf": 4, "ndf": 4, "blocks": 1, "pool_size": 3, **settings})


def two_layers():
    """A generator for tests of what is around it, several times as fast as the tiny one; always the same weights."""
    torch.manual_seed(0)
    first, second = nn.Conv2d(3, 2, 3, padding=1), nn.Conv2d(2, 3, 3, padding=1)
    return nn.Sequential(first, nn.InstanceNorm2d(2), nn.ReLU(True), second, nn.Tanh())
