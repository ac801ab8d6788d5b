"""One generator instead of two: a shared autoencoder, a translator of codes, and a deviation loss.

An article makes CycleGAN lighter by four changes at once. It shows no ablation, so here each change is an option that
can be undone by itself. `DeviationGAN` lists the choices that the article leaves open, and ours.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from labkit.errors import LabkitError
from labkit.models.losses import adversarial_loss, deviation_loss
from labkit.models.model import Model, trainable
from labkit.models.pool import Pool
from labkit.models.step import Batch, Step
from labkit.networks.codes import CodeDiscriminator, CodeGenerator, Decoder, Encoder, Translator, scaled
from labkit.networks.layers import Generator
from labkit.networks.patchgan import PatchDiscriminator
from labkit.settings import DeviationGANSettings, takes
from labtrace.errors import check_at_least, check_known

STAGES = {
    "joint": ("autoencoder", "translator", "discriminator"),
    "autoencoder": ("autoencoder",),
    "translation": ("translator", "discriminator"),
}
KNOWN = {
    "stage": STAGES,
    "judged": ("codes", "pictures"),
    "consistency": ("deviation_source", "deviation_both", "cycle"),
    "translators": (1, 2),
    "autoencoders": (1, 2),
}


class DeviationGANStep(Step):
    """The losses of `DeviationGAN`, one method for each player. `batch` passes codes and fakes from one to the next."""

    model: DeviationGAN

    def autoencoder(self, batch: Batch) -> dict[str, Tensor]:
        """Losses of the autoencoder, which should give back every picture as it was."""
        codes = self.encode(batch)
        back_a, back_b = self.of_both_domains("decoder", *codes)
        return {"rec_A": F.l1_loss(back_a, batch["real_a"]), "rec_B": F.l1_loss(back_b, batch["real_b"])}

    def translator(self, batch: Batch) -> dict[str, Tensor]:
        """Losses of the translator, which should deceive the discriminator and keep codes near their originals."""
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
        """Losses of the discriminator, which should tell codes (or pictures) from translated ones, some of them old."""
        model, losses = self.model, {}
        for source, target in model.routes:
            real = batch[f"code_{target}" if model.judged == "codes" else f"real_{target.lower()}"]
            pool = f"fake_{target}"
            fake = self.pooled(pool, batch[pool].to(real.dtype), batch)
            on_real, on_fake = self.judge(getattr(model, f"D_{source}"), real, fake)
            losses[f"D_{source}"] = 0.5 * (adversarial_loss(on_real, True) + adversarial_loss(on_fake, False))
        return losses

    def encode(self, batch: Batch) -> tuple[Tensor, Tensor]:
        """The codes of both batches, (B, 4 * ngf, H / 4, W / 4). `batch` keeps them scaled and without gradients."""
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
    """An autoencoder of pictures of both domains, T_A, which turns codes of A into codes of B, and D_A, its judge.

    Three players learn in each step. The autoencoder lowers the reconstruction error, the translator deceives D_A and
    keeps its codes near their originals, and the discriminator tells codes of B from translated ones. Each picture is
    encoded once a step. Translator and discriminator take the code as the autoencoder computed it, before its update
    and without gradients, so that their losses do not reach the encoder.

    The article leaves open how codes are scaled for the translator (here: to root mean square 1), how the translator
    starts (at the identity), whether gradients of translator and discriminator reach the encoder (no), which norm the
    deviation is measured in (L1), its weight (1), on which domain it acts (the one that is translated), the
    autoencoder's normalisation (none), and the learning rates. The defaults are those that worked on the fruit at
    64 x 64 pixels with ngf=16, ndf=16, blocks=3. examples/photographs.py is a small study of them on photographs.

    `labkit.settings.DeviationGANSettings` has the arguments. Four of them undo one change of the article each:
    ``translators=2`` adds T_B and D_B for B to A, ``autoencoders=2`` has one for A and another for B,
    ``judged="pictures"`` puts a PatchGAN on decoded codes, and ``consistency="cycle"`` translates codes there and back,
    which needs two translators. With "deviation_source" T_A should leave codes of A nearly unchanged, with
    "deviation_both" also codes of B, if it is given those. For T_B, A and B are swapped. From lambda_deviation 10 on,
    expect translations that change nothing. To train the autoencoder first, train a model of stage "autoencoder", then
    load its state_dict into one of stage "translation".

    Raises:
        LabkitError: an argument is unknown or out of range, or a cycle is asked for without a way back.
    """

    kind = "DeviationGAN"
    step_class = DeviationGANStep
    loss_names = tuple(f"{term}_{name}" for name in "AB" for term in ("rec", "D", "G", "dev", "idt", "cycle"))
    size_multiple, min_size = 4, 24  # a smaller code leaves a discriminator nothing to judge

    @takes(DeviationGANSettings)
    def __init__(self, given: DeviationGANSettings):
        super().__init__()
        self.settings = dict(vars(given))
        for name, known in KNOWN.items():
            check_known(name, self.settings[name], known)
        check_at_least(2, ngf=given.ngf)
        check_at_least(1, ndf=given.ndf, blocks=given.blocks)
        weights = {name: self.settings[name] for name in ("lambda_deviation", "lambda_identity", "lambda_cycle")}
        check_at_least(0, **weights, pool_size=given.pool_size)
        if given.consistency == "cycle" and given.translators == 1:
            raise LabkitError("consistency='cycle' needs a way back, which one translator has not: set translators=2.")
        self.stage, self.judged, self.consistency = given.stage, given.judged, given.consistency
        self.lambda_deviation, self.lambda_identity = given.lambda_deviation, given.lambda_identity
        self.lambda_cycle = given.lambda_cycle
        self.parts = f"an autoencoder, {given.blocks} blocks on codes, a discriminator of {given.judged}"
        self.routes = [("A", "B"), ("B", "A")][: given.translators]
        self.directions = ("AtoB", "BtoA")[: given.translators]
        self.shared = given.autoencoders == 1
        width = 4 * given.ngf  # of codes
        for domain in "A" if self.shared else "AB":
            self.add_module(self.named("encoder", domain), Encoder(given.ngf))
            self.add_module(self.named("decoder", domain), Decoder(given.ngf))
        for source, _ in self.routes:
            self.add_module(f"T_{source}", Translator(width, given.blocks))
            of_codes = given.judged == "codes"
            judge = CodeDiscriminator(width, given.ndf) if of_codes else PatchDiscriminator(width=given.ndf)
            self.add_module(f"D_{source}", judge)
        seeds = torch.randint(2**31, (given.translators,)).tolist()  # torch.manual_seed determines the pools, too
        self.pools = {
            f"fake_{to}": Pool(given.pool_size, seed) for (_, to), seed in zip(self.routes, seeds, strict=True)
        }

    def named(self, kind: str, domain: str) -> str:
        """The name of a domain's "encoder" or "decoder"."""
        return kind if self.shared else f"{kind}_{domain}"

    def players(self) -> dict[str, list[nn.Parameter]]:
        """Those of the autoencoder, the translator and the discriminator that learn in this model's stage."""
        kinds = {"autoencoder": ("encoder", "decoder"), "translator": ("T_",), "discriminator": ("D_",)}
        networks = list(self.named_children())
        return {
            player: trainable(*(network for name, network in networks if name.startswith(kinds[player])))
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
