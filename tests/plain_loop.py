"""CycleGAN in one plain loop, written from the paper and the reference's description, sharing no code with labkit.

The tests hold labkit's step to it, and the benchmark compares their speed: activations work in place here as they do
in the reference, which costs time (notebook 05 says why).
"""

import itertools
import random

import torch
from torch import nn
from torch.nn import functional as F


class Residual(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.first = nn.Conv2d(channels, channels, 3)
        self.second = nn.Conv2d(channels, channels, 3)

    def forward(self, x):
        y = F.relu(F.instance_norm(self.first(F.pad(x, (1, 1, 1, 1), mode="reflect"))), inplace=True)
        return x + F.instance_norm(self.second(F.pad(y, (1, 1, 1, 1), mode="reflect")))


def generator(blocks, width):
    def after(convolution):
        return convolution, nn.InstanceNorm2d(convolution.out_channels), nn.ReLU(True)

    return nn.Sequential(
        nn.ReflectionPad2d(3),
        *after(nn.Conv2d(3, width, 7)),
        *after(nn.Conv2d(width, 2 * width, 3, 2, 1)),
        *after(nn.Conv2d(2 * width, 4 * width, 3, 2, 1)),
        *(Residual(4 * width) for _ in range(blocks)),
        *after(nn.ConvTranspose2d(4 * width, 2 * width, 3, 2, 1, 1)),
        *after(nn.ConvTranspose2d(2 * width, width, 3, 2, 1, 1)),
        nn.ReflectionPad2d(3),
        nn.Conv2d(width, 3, 7),
        nn.Tanh(),
    )


def discriminator(width, name="basic", n_layers=3):
    def after(convolution):
        return convolution, nn.InstanceNorm2d(convolution.out_channels), nn.LeakyReLU(0.2, True)

    if name == "pixel":
        first, last = nn.Conv2d(3, width, 1), nn.Conv2d(2 * width, 1, 1)
        return nn.Sequential(first, nn.LeakyReLU(0.2, True), *after(nn.Conv2d(width, 2 * width, 1)), last)
    strides = [2] * ((3 if name == "basic" else n_layers) - 1) + [1]
    widths = [width * min(2**layer, 8) for layer in range(len(strides) + 1)]
    middle = [after(nn.Conv2d(widths[i], widths[i + 1], 4, stride, 1)) for i, stride in enumerate(strides)]
    return nn.Sequential(
        nn.Conv2d(3, width, 4, 2, 1),
        nn.LeakyReLU(0.2, True),
        *itertools.chain(*middle),
        nn.Conv2d(widths[-1], 1, 4, 1, 1),
    )


class ListPool:
    """The reference's pool: a list of pictures and a coin for each new one."""

    def __init__(self, size, seed):
        self.size, self.pictures, self.random = size, [], random.Random(seed)

    def query(self, batch):
        answer = []
        for picture in batch.detach().clone():
            if len(self.pictures) < self.size:
                self.pictures.append(picture)
            elif self.random.random() > 0.5:
                slot = self.random.randrange(self.size)
                picture, self.pictures[slot] = self.pictures[slot], picture
            answer.append(picture)
        return torch.stack(answer)


class PlainLoop:
    """Adam(0.5, 0.999), and the losses that these settings of a CycleGAN ask for: one step a call."""

    def __init__(self, settings, blocks, lr, pool_size, pool_seeds):
        self.G_A, self.G_B = generator(blocks, settings["ngf"]), generator(blocks, settings["ngf"])
        kind = settings["ndf"], settings["discriminator"], settings["n_layers"]
        self.D_A, self.D_B = discriminator(*kind), discriminator(*kind)
        self.pool_a, self.pool_b = (ListPool(pool_size, seed) for seed in pool_seeds)
        self.lambda_a, self.lambda_b, self.identity, self.gan_mode = (
            settings[name] for name in ("lambda_a", "lambda_b", "lambda_identity", "gan_mode")
        )
        generators = itertools.chain(self.G_A.parameters(), self.G_B.parameters())
        discriminators = itertools.chain(self.D_A.parameters(), self.D_B.parameters())
        self.adam_g = torch.optim.Adam(generators, lr=lr, betas=(0.5, 0.999))
        self.adam_d = torch.optim.Adam(discriminators, lr=lr, betas=(0.5, 0.999))

    def says(self, verdict, real):
        """The loss of a verdict that should say "real", or "fake"."""
        if self.gan_mode == "wgangp":
            return -verdict.mean() if real else verdict.mean()
        criterion = {"lsgan": nn.MSELoss(), "vanilla": nn.BCEWithLogitsLoss()}[self.gan_mode]
        return criterion(verdict, torch.tensor(float(real), dtype=verdict.dtype).expand_as(verdict))

    def __call__(self, a, b):
        judges = [*self.D_A.parameters(), *self.D_B.parameters()]
        for weight in judges:
            weight.requires_grad_(False)
        fake_b = self.G_A(a)
        rec_a = self.G_B(fake_b)
        fake_a = self.G_B(b)
        rec_b = self.G_A(fake_a)
        verdict_b, verdict_a = self.D_A(fake_b), self.D_B(fake_a)
        losses = {
            "G_A": self.says(verdict_b, True),
            "G_B": self.says(verdict_a, True),
            "cycle_A": self.lambda_a * (rec_a - a).abs().mean(),
            "cycle_B": self.lambda_b * (rec_b - b).abs().mean(),
        }
        if self.identity:
            losses["idt_A"] = self.identity * self.lambda_b * (self.G_A(b) - b).abs().mean()
            losses["idt_B"] = self.identity * self.lambda_a * (self.G_B(a) - a).abs().mean()
        self.adam_g.zero_grad()
        sum(losses.values()).backward()
        self.adam_g.step()
        for weight in judges:
            weight.requires_grad_(True)
        self.adam_d.zero_grad()
        for name, judge, real, fake in (
            ("D_A", self.D_A, b, self.pool_b.query(fake_b)),
            ("D_B", self.D_B, a, self.pool_a.query(fake_a)),
        ):
            losses[name] = 0.5 * (self.says(judge(real), True) + self.says(judge(fake), False))
            losses[name].backward()
        self.adam_d.step()
        return {name: loss.detach() for name, loss in losses.items()}


def twin(model, lr, pool_size):
    """A plain loop with the settings, weights and pool seeds of a labkit model: resnet, instance norm."""
    blocks = int(model.settings["generator"].removeprefix("resnet_").removesuffix("blocks"))
    seeds = (21, 22)
    model.pools["fake_A"].random.seed(seeds[0])
    model.pools["fake_B"].random.seed(seeds[1])
    loop = PlainLoop(model.settings, blocks, lr, pool_size, seeds)
    weight = next(model.parameters())
    for name in ("G_A", "G_B", "D_A", "D_B"):
        mine, weights = getattr(loop, name).to(weight), getattr(model, name).state_dict().values()
        mine.load_state_dict(dict(zip(mine.state_dict(), weights, strict=True)))
    return loop
