"""CycleGAN: two generators, two discriminators, and the losses that train them.

Zhu, Park, Isola, Efros: "Unpaired Image-to-Image Translation using Cycle-Consistent Adversarial Networks", 2017.
Names, losses and weights are those of its public reference, github.com/junyanz/pytorch-CycleGAN-and-pix2pix.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor, nn

from labkit.errors import LabkitError
from labkit.models.losses import GAN_MODES, adversarial_loss, cycle_loss, identity_loss
from labkit.models.model import Model, trainable
from labkit.models.pool import Pool
from labkit.models.step import Batch, Forward, Step
from labkit.networks.generators import make_generator
from labkit.networks.layers import CUSTOM, Generator, check_custom
from labkit.networks.patchgan import make_discriminator
from labkit.settings import CycleGANSettings, takes
from labtrace.errors import check_at_least, check_known

DIRECTIONS = {"AtoB": "G_A", "BtoA": "G_B"}
NETWORKS = {"generator": ("G_A", "G_B"), "discriminator": ("D_A", "D_B")}  # keyed by the constructor's argument


class Journey(NamedTuple):
    """What one cycle needs: `go` translates the pictures `real`, and `back` translates the result back."""

    go: Forward
    back: Forward
    real: Tensor  # (B, C, H, W) in [-1, 1]
    other: Tensor | None  # pictures of the domain that `go` translates to; None without an identity loss


class Cycle(NamedTuple):
    """The pictures that one cycle makes, each (B, C, H, W) in [-1, 1]."""

    fake: Tensor  # `real`, translated
    back: Tensor  # `real`, translated and translated back
    same: Tensor | None  # `other`, translated: it should not change


class CycleGANStep(Step):
    """CycleGAN's losses (Zhu et al. 2017, section 3): the methods `generators` and `discriminators`."""

    model: CycleGAN
    cycle_loss = staticmethod(cycle_loss)

    def generators(self, batch: Batch) -> dict[str, Tensor]:
        """Losses of the generators.

        Translations should deceive the discriminators (G), translations back should give the original (cycle), and
        pictures that already are of the target domain should stay as they are (idt).
        """
        model, real_a, real_b = self.model, batch["real_a"], batch["real_b"]
        other_b, other_a = (real_b, real_a) if model.lambda_identity else (None, None)
        to_b, to_a = self.cycles(
            [Journey(model.G_A, model.G_B, real_a, other_b), Journey(model.G_B, model.G_A, real_b, other_a)]
        )
        batch["fake_b"], batch["fake_a"] = to_b.fake.detach(), to_a.fake.detach()
        losses = {
            "G_A": adversarial_loss(model.D_A(to_b.fake), True, model.gan_mode),
            "G_B": adversarial_loss(model.D_B(to_a.fake), True, model.gan_mode),
            "cycle_A": self.cycle_loss(real_a, to_b.back, model.lambda_a),
            "cycle_B": self.cycle_loss(real_b, to_a.back, model.lambda_b),
        }
        if to_b.same is not None and to_a.same is not None:
            losses["idt_A"] = identity_loss(real_b, to_b.same, model.lambda_b * model.lambda_identity)
            losses["idt_B"] = identity_loss(real_a, to_a.same, model.lambda_a * model.lambda_identity)
        return losses

    def cycles(self, journeys: Sequence[Journey]) -> list[Cycle]:
        """Both cycles, A -> B -> A and B -> A -> B (a seam)."""
        return [self.cycle(*journey) for journey in journeys]

    def cycle(self, go: Forward, back: Forward, real: Tensor, other: Tensor | None) -> Cycle:
        """The pictures of one cycle (a seam). See `Journey` for the arguments."""
        fake, same = (go(real), None) if other is None else self.both(go, real, other)
        return Cycle(fake, back(fake), same)

    def discriminators(self, batch: Batch) -> dict[str, Tensor]:
        """Losses of the discriminators, which should tell real pictures from fakes, some of them from earlier steps."""
        model, losses = self.model, {}
        for name, discriminator, domain in (("D_A", model.D_A, "b"), ("D_B", model.D_B, "a")):
            real = batch[f"real_{domain}"]
            fake = self.pooled(f"fake_{domain.upper()}", batch[f"fake_{domain}"].to(real.dtype), batch)
            on_real, on_fake = self.judge(discriminator, real, fake)
            loss = adversarial_loss(on_real, True, model.gan_mode) + adversarial_loss(on_fake, False, model.gan_mode)
            losses[name] = 0.5 * loss
        return losses


class CycleGAN(Model):
    """G_A translates A to B, and G_B translates B to A. D_A judges pictures of B, and D_B pictures of A.

    Custom networks keep their initial weights, and ngf, ndf, n_layers and norm are ignored for them. A generator takes
    pictures (B, C, H, W) in [-1, 1] and returns as many of the same size. A discriminator returns verdicts of any
    shape. Sides of pictures are multiples of their attribute `size_multiple` and at least `min_size`, by default 4 and
    16. Weights with ``requires_grad=False`` stay as they are. A checkpoint does not hold the code of custom networks,
    so `labkit.load_model` asks for them again.

    `labkit.settings.CycleGANSettings` has the arguments. ``gan_mode="wgangp"`` is without a gradient penalty, as in the
    reference's CycleGAN, so its discriminators are not bounded. docs/reference.md adds the missing term.

    Args:
        generator: a name, or a custom network: an nn.Module, of which G_A and G_B are copies.
        discriminator: a name, or an nn.Module, of which D_A and D_B are copies.

    Raises:
        LabkitError: an argument is unknown or out of range, a custom network has no weights, or there is an identity
            loss between domains with different channels.

    Example:
        >>> model = labkit.CycleGAN(generator="resnet_6blocks", ngf=8, ndf=8)
        >>> model.G_A(torch.zeros(1, 3, 64, 64)).shape
        torch.Size([1, 3, 64, 64])
    """

    kind = "CycleGAN"
    step_class = CycleGANStep
    loss_names: tuple[str, ...] = ("D_A", "G_A", "cycle_A", "idt_A", "D_B", "G_B", "cycle_B", "idt_B")

    @takes(CycleGANSettings)
    def __init__(self, given: CycleGANSettings):
        super().__init__()
        self.settings = dict(vars(given))
        check_known("gan_mode", given.gan_mode, GAN_MODES)
        weights = {name: self.settings[name] for name in ("lambda_a", "lambda_b", "lambda_identity")}
        check_at_least(0, **weights, pool_size=given.pool_size)
        self.lambda_a, self.lambda_b, self.lambda_identity = given.lambda_a, given.lambda_b, given.lambda_identity
        self.gan_mode = given.gan_mode
        self.channels = of_a, of_b = given.channels_a, given.channels_b
        if of_a != of_b and given.lambda_identity:
            raise LabkitError(
                f"channels_a={of_a}, channels_b={of_b}: G_A takes no pictures of B. Set lambda_identity=0."
            )
        self.G_A, self.G_B = (
            make_generator(given.generator, given.ngf, given.norm, way) for way in ((of_a, of_b), (of_b, of_a))
        )
        self.D_A, self.D_B = (  # D_A judges pictures of B
            make_discriminator(given.discriminator, given.ndf, given.n_layers, given.norm, of) for of in (of_b, of_a)
        )
        for argument, names in NETWORKS.items():
            if not isinstance(self.settings[argument], str):
                self.settings[argument] = CUSTOM + type(self.settings[argument]).__name__
                self.custom += names
        self.size_multiple = math.lcm(self.G_A.size_multiple, self.G_B.size_multiple)
        self.min_size = max(network.min_size for network in (self.G_A, self.G_B, self.D_A, self.D_B))
        self.parts = f"{self.settings['generator']}, {self.settings['discriminator']}"
        seed_a, seed_b = torch.randint(2**31, (2,)).tolist()  # so that torch.manual_seed determines the pools as well
        self.pools = {"fake_A": Pool(given.pool_size, seed_a), "fake_B": Pool(given.pool_size, seed_b)}

    def check(self, real_a: Tensor, real_b: Tensor, values: bool) -> None:
        super().check(real_a, real_b, values)
        for name, pictures in (("G_A", real_a), ("D_A", real_b)):  # G_B and D_B are copies of these
            if values and name in self.custom:
                check_custom(name, getattr(self, name), pictures[:2])

    def players(self) -> dict[str, list[nn.Parameter]]:
        """The weights of the generators, then those of the discriminators, without frozen ones."""
        return {"generators": trainable(self.G_A, self.G_B), "discriminators": trainable(self.D_A, self.D_B)}

    def learning_rates(self) -> dict[str, float]:
        """Adam's learning rate for each player, from the paper (section 4)."""
        return {"generators": 2e-4, "discriminators": 2e-4}

    def translator(self, direction: str = "AtoB") -> Generator:
        """The generator of this direction: G_A for "AtoB", G_B for "BtoA"."""
        check_known("direction", direction, DIRECTIONS)
        return getattr(self, DIRECTIONS[direction])
