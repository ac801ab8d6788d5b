"""CycleGAN: two generators, two discriminators, and what each side wants.

Zhu, Park, Isola, Efros: "Unpaired Image-to-Image Translation using Cycle-Consistent Adversarial Networks", 2017.
Names, losses and weights are those of its public reference, github.com/junyanz/pytorch-CycleGAN-and-pix2pix.
"""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from labkit.errors import LabkitError, check_known
from labkit.models.losses import GAN_MODES, adversarial_loss, cycle_loss, identity_loss
from labkit.models.model import Model
from labkit.models.pool import Pool
from labkit.networks.generators import make_generator
from labkit.networks.patchgan import make_discriminator

if TYPE_CHECKING:
    from labkit.step import Step

DIRECTIONS = {"AtoB": "G_A", "BtoA": "G_B"}


class CycleGAN(Model):
    """G_A translates A to B, G_B translates B to A; D_A judges pictures of B, D_B pictures of A.

    Args:
        generator: "resnet_9blocks", "resnet_6blocks", "resnet_3blocks", "unet_256", "unet_128", or a light one:
            "resnet_9blocks_narrow", "..._tapered", "..._separable", "..._grouped" or "..._inverted".
        discriminator: "basic", "n_layers" or "pixel".
        ngf, ndf: filters in the first layer of the generators and of the discriminators.
        n_layers: strided layers of an "n_layers" discriminator.
        norm: "instance", "batch", "none" or "instance_blocks".
        lambda_a, lambda_b: weights of the cycle A -> B -> A and of B -> A -> B.
        lambda_identity: weight of the identity loss relative to lambda_a and lambda_b; 0 leaves it out.
        gan_mode: "lsgan" or "vanilla".
        pool_size: fakes the discriminators are reminded of; 0 shows them the newest only.

    Raises:
        LabkitError: an argument is unknown or out of range.
    """

    kind = "CycleGAN"
    loss_names = ("D_A", "G_A", "cycle_A", "idt_A", "D_B", "G_B", "cycle_B", "idt_B")

    def __init__(
        self,
        generator: str = "resnet_9blocks",
        discriminator: str = "basic",
        ngf: int = 64,
        ndf: int = 64,
        n_layers: int = 3,
        norm: str = "instance",
        lambda_a: float = 10.0,
        lambda_b: float = 10.0,
        lambda_identity: float = 0.5,
        gan_mode: str = "lsgan",
        pool_size: int = 50,
    ):
        super().__init__()
        arguments = locals()
        self.settings = {name: arguments[name] for name in inspect.signature(CycleGAN).parameters}
        check_known("gan_mode", gan_mode, GAN_MODES)
        for name in ("lambda_a", "lambda_b", "lambda_identity", "pool_size"):
            if arguments[name] < 0:
                raise LabkitError(f"{name}={arguments[name]} is negative; 0 switches that part off.")
        self.lambda_a, self.lambda_b, self.lambda_identity = lambda_a, lambda_b, lambda_identity
        self.gan_mode = gan_mode
        self.G_A = make_generator(generator, ngf, norm)
        self.G_B = make_generator(generator, ngf, norm)
        self.D_A = make_discriminator(discriminator, ndf, n_layers, norm)
        self.D_B = make_discriminator(discriminator, ndf, n_layers, norm)
        self.multiple, self.least = self.G_A.multiple, max(self.G_A.least, self.D_A.least)
        self.parts = f"{generator}, {discriminator}"
        seed_a, seed_b = torch.randint(2**31, (2,)).tolist()  # so that torch.manual_seed settles the pools as well
        self.pools = {"fake_A": Pool(pool_size, seed_a), "fake_B": Pool(pool_size, seed_b)}

    def players(self) -> dict[str, list[nn.Parameter]]:
        """The generators, then the discriminators."""
        return {
            "generators": [*self.G_A.parameters(), *self.G_B.parameters()],
            "discriminators": [*self.D_A.parameters(), *self.D_B.parameters()],
        }

    def learning_rates(self) -> dict[str, float]:
        """Adam's learning rate for each player, as in the paper (section 4)."""
        return {"generators": 2e-4, "discriminators": 2e-4}

    def losses(self, player: str, step: Step, batch: dict[str, Tensor]) -> dict[str, Tensor]:
        """The terms of the generators, who leave their fakes in `batch`, or those of the discriminators."""
        if player == "generators":
            return self.generator_losses(step, batch)
        return self.discriminator_losses(step, batch)

    def generator_losses(self, step: Step, batch: dict[str, Tensor]) -> dict[str, Tensor]:
        """Deceive the discriminators, come back from the round trip, and leave alone what is right already."""
        real_a, real_b = batch["real_a"], batch["real_b"]
        cycle_a, cycle_b = step.both_cycles(self, real_a, real_b)
        batch["fake_b"], batch["fake_a"] = cycle_a.fake.detach(), cycle_b.fake.detach()
        losses = {
            "G_A": adversarial_loss(self.D_A(cycle_a.fake), True, self.gan_mode),
            "G_B": adversarial_loss(self.D_B(cycle_b.fake), True, self.gan_mode),
            "cycle_A": cycle_loss(real_a, cycle_a.back, self.lambda_a),
            "cycle_B": cycle_loss(real_b, cycle_b.back, self.lambda_b),
        }
        if self.lambda_identity:
            losses["idt_A"] = identity_loss(real_b, cycle_a.same, self.lambda_b * self.lambda_identity)
            losses["idt_B"] = identity_loss(real_a, cycle_b.same, self.lambda_a * self.lambda_identity)
        return losses

    def discriminator_losses(self, step: Step, batch: dict[str, Tensor]) -> dict[str, Tensor]:
        """Tell real pictures from fakes, some of which are older than this step."""
        losses = {}
        for name, judge, domain in (("D_A", self.D_A, "b"), ("D_B", self.D_B, "a")):
            real = batch[f"real_{domain}"]
            fake = step.recall(self.pools[f"fake_{domain.upper()}"], batch[f"fake_{domain}"].to(real.dtype))
            on_real, on_fake = step.judge(judge, real, fake)
            on_real = adversarial_loss(on_real, True, self.gan_mode)
            losses[name] = 0.5 * (on_real + adversarial_loss(on_fake, False, self.gan_mode))
        return losses

    def translator(self, direction: str = "AtoB") -> nn.Module:
        """G_A for "AtoB", G_B for "BtoA"."""
        check_known("direction", direction, DIRECTIONS)
        return getattr(self, DIRECTIONS[direction])
