"""One generator instead of two: a shared autoencoder, a translator of codes, and a deviation loss.

After an article that makes CycleGAN lighter by four changes. It shows no ablation, so each change is an option here
that can be taken back by itself. `DeviationGAN` lists the choices that the article leaves open, and ours.
"""

from __future__ import annotations

import inspect
import warnings

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from labkit.errors import LabkitError, check_known
from labkit.models.losses import adversarial_loss, deviation_loss
from labkit.models.model import Model
from labkit.models.pool import Pool
from labkit.models.step import Batch, Step
from labkit.networks.codes import CodeDiscriminator, CodeGenerator, Decoder, Encoder, Translator, scaled
from labkit.networks.layers import Generator
from labkit.networks.patchgan import PatchDiscriminator

STAGES = {
    "joint": ("autoencoder", "translator", "discriminator"),
    "autoencoder": ("autoencoder",),
    "translation": ("translator", "discriminator"),
}
JUDGED = ("codes", "pictures")
CONSISTENCIES = ("deviation_source", "deviation_both", "cycle")
COLLAPSES = 10.0  # at this weight of the deviation the fruit stays unchanged: the discriminator wins outright


class IdentityWarning(UserWarning):
    """With these weights the translator is expected to leave everything as it is."""


class DeviationGANStep(Step):
    """The three players of `DeviationGAN`, each a method. `batch` passes codes and fakes from player to player."""

    model: DeviationGAN

    def autoencoder(self, batch: Batch) -> dict[str, Tensor]:
        """Its losses: give back every picture as it was."""
        codes = self.encode(batch)
        back_a, back_b = self.of_both_domains("decoder", *codes)
        return {"rec_A": F.l1_loss(back_a, batch["real_a"]), "rec_B": F.l1_loss(back_b, batch["real_b"])}

    def translator(self, batch: Batch) -> dict[str, Tensor]:
        """Its losses: deceive the discriminator, and keep codes near their originals."""
        if "code_A" not in batch:
            with torch.no_grad():
                self.encode(batch)
        model, losses = self.model, {}
        for source, target in model.routes:
            translator, code, other = getattr(model, f"T_{source}"), batch[f"code_{source}"], batch[f"code_{target}"]
            if model.consistency == "deviation_both":
                fake, same = self.both(translator, code, other)
                losses[f"idt_{source}"] = deviation_loss(other, same, model.lambda_identity)
            else:
                fake = translator(code)
            if model.consistency == "cycle":
                back = getattr(model, f"T_{target}")(fake)
                losses[f"cycle_{source}"] = deviation_loss(code, back, model.lambda_cycle)
            else:
                losses[f"dev_{source}"] = deviation_loss(code, fake, model.lambda_deviation)
            if model.judged == "pictures":
                fake = getattr(model, model.named("decoder", target))(batch[f"scale_{source}"] * fake)
            batch[f"fake_{target}"] = fake.detach()
            losses[f"G_{source}"] = adversarial_loss(getattr(model, f"D_{source}")(fake), True)
        return losses

    def discriminator(self, batch: Batch) -> dict[str, Tensor]:
        """Its losses: tell codes (or pictures) of the target domain from translated ones, some from earlier steps."""
        model, losses = self.model, {}
        for source, target in model.routes:
            real = batch[f"code_{target}" if model.judged == "codes" else f"real_{target.lower()}"]
            pool = f"fake_{target}"
            fake = self.pooled(pool, batch[pool].to(real.dtype), batch)
            on_real, on_fake = self.judge(getattr(model, f"D_{source}"), real, fake)
            losses[f"D_{source}"] = 0.5 * (adversarial_loss(on_real, True) + adversarial_loss(on_fake, False))
        return losses

    def encode(self, batch: Batch) -> tuple[Tensor, Tensor]:
        """The codes of both batches, (B, 4 * ngf, H / 4, W / 4); `batch` keeps them scaled and without gradients."""
        codes = self.of_both_domains("encoder", batch["real_a"], batch["real_b"])
        for domain, code in zip("AB", codes, strict=True):
            # Of the pictures' type even if autocast computed it in 16 bits: the pool keeps it from step to step.
            code = code.detach().to(batch["real_a"].dtype)
            batch[f"code_{domain}"], batch[f"scale_{domain}"] = scaled(code)
        return codes

    def of_both_domains(self, kind: str, a: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:
        """The outputs of the encoder (or decoder) of A for `a`, and of B's for `b`."""
        of_a, of_b = (getattr(self.model, self.model.named(kind, domain)) for domain in "AB")
        return self.both(of_a, a, b) if self.model.shared else (of_a(a), of_b(b))


class DeviationGAN(Model):
    """Encoders and decoders that reconstruct, T_A that turns codes of A into codes of B, D_A that judges those.

    Three players on the same step: the autoencoder lowers the reconstruction error, the translator deceives D_A and
    keeps its codes near their originals, the discriminator tells codes of B from translated ones. Each picture is
    encoded once a step: translator and discriminator take the code as the autoencoder computed it, before its update
    and without gradients, so that nothing they want reaches the encoder.

    The article leaves open how codes are scaled for the translator (here: to root mean square 1), how the translator
    starts (at the identity), whether gradients of translator and discriminator reach the encoder (no), which norm the
    deviation is measured in (L1), its weight (1), on which domain it acts (the one that is translated), the
    autoencoder's normalisation (none), and the learning rates. The defaults are those that worked on the fruit at
    64 x 64 pixels with ngf=16, ndf=16, blocks=3; nobody has tried them on photographs.

    Args:
        ngf, ndf: filters in the encoder's first layer and, four times as many, in the discriminator's on codes.
        blocks: residual blocks of a translator.
        translators: 1 translates A to B only; 2 takes "one generator" back: T_B and D_B for B to A.
        autoencoders: 1, shared by both domains; 2 takes that back: one for A, another for B.
        stage: "joint", "autoencoder" or "translation": who learns. "joint": all; "autoencoder": it alone;
            "translation": all but the autoencoder. To train the autoencoder first, train a model of stage
            "autoencoder", then load its state_dict into one of "translation".
        judged: "codes"; "pictures" takes that back: a PatchGAN on decoded codes.
        consistency: "deviation_source", "deviation_both" or "cycle". The loss that keeps a translation near its source.
            "deviation_source": T_A should leave codes of A nearly unchanged; "deviation_both": codes of B, too, if T_A
            is given those; "cycle" takes the deviation loss back: codes that are translated there and back, which needs
            two translators. (T_B: with A and B swapped.)
        lambda_deviation: weight of the deviation of codes to be translated. These three count where `consistency` has
            their loss.
        lambda_identity: weight of the deviation of codes that are of the target domain already.
        lambda_cycle: weight of the cycle of codes.
        pool_size: translated codes or pictures that a discriminator is reminded of; 0 shows it the newest only.

    Raises:
        LabkitError: an argument is unknown or out of range, or a cycle is asked for without a way back.

    Warns:
        IdentityWarning: the deviation weighs so much that the identity is the best translation.
    """

    kind = "DeviationGAN"
    step_class = DeviationGANStep
    loss_names = tuple(f"{term}_{name}" for name in "AB" for term in ("rec", "D", "G", "dev", "idt", "cycle"))
    size_multiple, min_size = 4, 24  # a smaller code leaves a discriminator nothing to judge

    def __init__(
        self,
        ngf: int = 64,
        ndf: int = 64,
        blocks: int = 9,
        translators: int = 1,
        autoencoders: int = 1,
        stage: str = "joint",
        judged: str = "codes",
        consistency: str = "deviation_source",
        lambda_deviation: float = 1.0,
        lambda_identity: float = 10.0,
        lambda_cycle: float = 10.0,
        pool_size: int = 50,
    ):
        super().__init__()
        arguments = locals()
        self.settings = {name: arguments[name] for name in inspect.signature(DeviationGAN).parameters}
        _check(self.settings)
        self.stage, self.judged, self.consistency = stage, judged, consistency
        self.lambda_deviation, self.lambda_identity = lambda_deviation, lambda_identity
        self.lambda_cycle = lambda_cycle
        self.parts = f"an autoencoder, {blocks} blocks on codes, a discriminator of {judged}"
        self.routes = [("A", "B"), ("B", "A")][:translators]
        self.directions = ("AtoB", "BtoA")[:translators]
        self.shared = autoencoders == 1
        for domain in "A" if self.shared else "AB":
            self.add_module(self.named("encoder", domain), Encoder(ngf))
            self.add_module(self.named("decoder", domain), Decoder(ngf))
        for source, _ in self.routes:
            self.add_module(f"T_{source}", Translator(4 * ngf, blocks))
            judge = CodeDiscriminator(4 * ngf, ndf) if judged == "codes" else PatchDiscriminator(width=ndf)
            self.add_module(f"D_{source}", judge)
        seeds = torch.randint(2**31, (translators,)).tolist()  # so that torch.manual_seed settles the pools as well
        self.pools = {f"fake_{to}": Pool(pool_size, seed) for (_, to), seed in zip(self.routes, seeds, strict=True)}

    def named(self, kind: str, domain: str) -> str:
        """The name of a domain's "encoder" or "decoder"."""
        return kind if self.shared else f"{kind}_{domain}"

    def players(self) -> dict[str, list[nn.Parameter]]:
        """Those of the autoencoder, the translator and the discriminator that learn in this model's stage."""
        kinds = {"autoencoder": ("encoder", "decoder"), "translator": ("T_",), "discriminator": ("D_",)}
        return {
            player: [
                weight
                for name, network in self.named_children()
                if name.startswith(kinds[player])
                for weight in network.parameters()
            ]
            for player in STAGES[self.stage]
        }

    def learning_rates(self) -> dict[str, float]:
        """Adam's learning rate for each player: those that worked on the fruit."""
        rates = {"autoencoder": 1e-3, "translator": 5e-4, "discriminator": 5e-4}
        return {player: rates[player] for player in STAGES[self.stage]}

    def translator(self, direction: str = "AtoB") -> Generator:
        """Encoder, translator and decoder as one network.

        Raises:
            LabkitError: the direction is unknown, or is "BtoA" and there is one translator only.
        """
        check_known("direction", direction, ("AtoB", "BtoA"))
        if direction not in self.directions:
            raise LabkitError("direction='BtoA': this model has one translator, A to B. Make it with translators=2.")
        source, target = self.routes[self.directions.index(direction)]
        names = self.named("encoder", source), f"T_{source}", self.named("decoder", target)
        return CodeGenerator(*(getattr(self, name) for name in names)).train(self.training)


def _check(settings: dict) -> None:
    """Raises `LabkitError` if the settings of a `DeviationGAN` make no sense, warns if they are known to fail."""
    for name, known in (("stage", STAGES), ("judged", JUDGED), ("consistency", CONSISTENCIES)):
        check_known(name, settings[name], known)
    for name in ("translators", "autoencoders"):
        if settings[name] not in (1, 2):
            raise LabkitError(f"{name}={settings[name]}: there can be 1 or 2; see labkit.DeviationGAN.")
    for name, least in (("ngf", 2), ("ndf", 1), ("blocks", 1)):
        if settings[name] < least:
            raise LabkitError(f"{name}={settings[name]}: at least {least} is needed.")
    for name in ("lambda_deviation", "lambda_identity", "lambda_cycle", "pool_size"):
        if not 0 <= settings[name] < float("inf"):
            raise LabkitError(f"{name}={settings[name]} is negative or not finite; 0 switches that part off.")
    if settings["consistency"] == "cycle":
        if settings["translators"] == 1:
            raise LabkitError("consistency='cycle' needs a way back, which one translator has not: set translators=2.")
    elif settings["lambda_deviation"] >= COLLAPSES:
        warnings.warn(
            f"lambda_deviation={settings['lambda_deviation']:g}: the translator is expected to leave everything as it "
            "is, since no deviation at all then costs less than a translation that deceives the discriminator. Try 1.",
            IdentityWarning,
            stacklevel=3,
        )
