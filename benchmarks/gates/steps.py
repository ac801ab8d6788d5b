"""Steps to examine `labkit.compare` with: 35 wrong ones and 25 right ones, written before any was judged.

    python -m benchmarks.gates.steps             judges all, two at once, and prints a table
    python -m benchmarks.gates.steps NAME ...    judges these, in this process
"""

from __future__ import annotations

import copy
import json
import subprocess
import sys
import time
import types
import warnings
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

import labkit
from labkit.models.losses import adversarial_loss

TIMEOUT_S = 240


class Case(NamedTuple):
    """A step to be judged."""

    step: type
    wrong: bool
    note: str  # what is wrong, or why it is right
    on: tuple[str, ...] = ()  # the speed-ups below it
    batch: int = 2
    norm: str = "instance"


CASES: dict[str, Case] = {}


def wrong(note: str, *on: str, **options: Any) -> Callable[[type], type]:
    return lambda step: CASES.setdefault(step.__name__, Case(step, True, note, on, **options)).step


def right(note: str, *on: str, **options: Any) -> Callable[[type], type]:
    return lambda step: CASES.setdefault(step.__name__, Case(step, False, note, on, **options)).step


@contextmanager
def patched(model: nn.Module, forwards: dict[type, Callable]) -> Iterator[None]:
    """Layers of these types compute `function(layer, original, x)` meanwhile."""
    layers = [layer for layer in model.modules() if type(layer) in forwards]
    for layer in layers:
        vars(layer)["forward"] = types.MethodType(_route(forwards[type(layer)]), layer)
    try:
        yield
    finally:
        for layer in layers:
            del vars(layer)["forward"]


def _route(function: Callable) -> Callable:
    def forward(layer: nn.Module, x: Tensor) -> Tensor:
        return function(layer, lambda y: type(layer).forward(layer, y), x)

    return forward


class Adam(torch.optim.Adam):
    """Adam by hand, from the paper, weight by weight, with PyTorch's names of its state."""

    @torch.no_grad()
    def step(self, closure=None):
        for group in self.param_groups:
            for w in group["params"]:
                if w.grad is not None:
                    self.one(w, self.state_of(w), group)

    def state_of(self, w: Tensor) -> dict[str, Tensor]:
        state = self.state[w]
        if not state:
            state["step"] = torch.tensor(0.0)
            state["exp_avg"], state["exp_avg_sq"] = torch.zeros_like(w), torch.zeros_like(w)
        state["step"] += 1
        return state

    def one(self, w: Tensor, state: dict[str, Tensor], group: dict) -> None:
        (b1, b2), t = group["betas"], state["step"].item()
        m, v, g = state["exp_avg"], state["exp_avg_sq"], w.grad
        m.copy_(b1 * m + (1 - b1) * g)
        v.copy_(b2 * v + (1 - b2) * g * g)
        w -= self.rate(group) * (m / (1 - b1**t)) / ((v / (1 - b2**t)).sqrt() + group["eps"])

    def rate(self, group: dict) -> float:
        return float(group["lr"])


def with_adam(adam: type) -> Callable:
    adam.__name__ = "Adam"  # the kind that checkpoints name
    return lambda self, weights, lr, betas: adam(weights, lr=lr, betas=betas)


# ---- wrong


@wrong("the identity pass of G_B runs without gradients, so idt_B is reported but not learned from")
class IdentityOneWay(labkit.Step):
    def cycle(self, go, back, real, other):
        if go is not self.model.G_B:
            return super().cycle(go, back, real, other)
        made = super().cycle(go, back, real, None)
        with torch.no_grad():
            return made._replace(same=go(other))


@wrong("the half of the discriminators' loss is only in what is reported, not in the gradient")
class HalfInReport(labkit.Step):
    def discriminators(self, batch):
        return {name: 2 * loss - loss.detach() for name, loss in super().discriminators(batch).items()}


@wrong("a converted copy of the batch is kept by its address, where the next batch may lie")
class CopyByAddress(labkit.Step):
    key = None

    def inputs(self, real_a, real_b):
        key = (real_a.data_ptr(), real_b.data_ptr(), real_a.shape, real_a.dtype)
        if key != self.key:
            self.key, self.copies = key, (real_a.clone(), real_b.clone())
        return super().inputs(*self.copies)


@wrong("the discriminators' gradients are cleared after every second update only")
class ClearedEverySecond(labkit.Step):
    taken = 0

    def update(self, player):
        if player == "generators":
            return super().update(player)
        self.taken += 1
        self.optimizers[player].step()
        if self.taken % 2 == 0:
            self.optimizers[player].zero_grad()


class _Eps(Adam):
    def one(self, w, state, group):
        super().one(w, state, {**group, "eps": 1e-7})


@wrong("an Adam by hand with TensorFlow's eps of 1e-7, which its groups do not tell")
class OtherEps(labkit.Step):
    optimizer = with_adam(_Eps)


class _Powers(Adam):
    def one(self, w, state, group):
        p1, p2 = vars(self).get("powers", (1.0, 1.0))
        (b1, b2), first = group["betas"], w is group["params"][0]
        if first:
            p1, p2 = self.powers = p1 * b1, p2 * b2
        m, v, g = state["exp_avg"], state["exp_avg_sq"], w.grad
        m.mul_(b1).add_(g, alpha=1 - b1)
        v.mul_(b2).addcmul_(g, g, value=1 - b2)
        w -= group["lr"] / (1 - p1) * m / ((v / (1 - p2)).sqrt() + group["eps"])


@wrong("bias correction from running powers of the betas, which load_state_dict does not restore")
class PowersNotLoaded(labkit.Step):
    optimizer = with_adam(_Powers)


class _Frozen(Adam):
    def one(self, w, state, group):
        kept = state["exp_avg_sq"].clone()
        super().one(w, state, group)
        if state["step"] > 15:
            state["exp_avg_sq"].copy_(kept)


@wrong("Adam's second moment is not updated from update 16 on, as 1-bit Adam freezes it")
class FrozenVariance(labkit.Step):
    optimizer = with_adam(_Frozen)


@wrong("both pools use pool A's decisions: the same until the pools of 50 are full", batch=1)
class SameDraw(labkit.Step):
    def inputs(self, real_a, real_b):
        batch = super().inputs(real_a, real_b)
        batch["draw_fake_B"] = batch["draw_fake_A"]
        return batch


@wrong("checkpoints around generators with batch norm: running statistics count each batch twice", norm="batch")
class RecomputedBatchNorm(labkit.Step):
    def cycles(self, journeys):
        def again(network):
            return lambda x: checkpoint(network, x, use_reentrant=False)

        return super().cycles([j._replace(go=again(j.go), back=again(j.back)) for j in journeys])


@wrong("parts of unequal size count the same, which differs for odd batches only", "accumulate")
class MeanOfMeans(labkit.Step):
    def backward(self, loss, player):
        self.share = 1 / self.parts
        super().backward(loss, player)


@wrong("Adam's moments are rounded to bfloat16 after each update", "bf16")
class MomentsIn16(labkit.Step):
    def update(self, player):
        super().update(player)
        for state in self.optimizers[player].state.values():
            for name in ("exp_avg", "exp_avg_sq"):
                state[name].copy_(state[name].bfloat16())


class _MinimumRate(Adam):
    def rate(self, group):
        return max(float(group["lr"]), 2e-6)


@wrong("the learning rate is kept above 1 % of its usual value")
class MinimumRate(labkit.Step):
    optimizer = with_adam(_MinimumRate)


@wrong("finish() leaves averaged generators in the model")
class FinishAverages(labkit.Step):
    average = None

    def update(self, player):
        super().update(player)
        if player == "generators":
            now = [w.detach().clone() for w in self.players[player]]
            if self.average is None:
                self.average = now
            torch._foreach_lerp_(self.average, now, 0.1)

    def finish(self):
        super().finish()
        with torch.no_grad():
            for weight, mean in zip(self.players["generators"], self.average or [], strict=False):
                weight.copy_(mean)


@wrong("load_state_dict does not restore the pools' random numbers, which matter once they are full")
class PoolSeedNotLoaded(labkit.Step):
    def load_state_dict(self, state):
        seeds = {name: pool.random.getstate() for name, pool in self.model.pools.items()}
        super().load_state_dict(state)
        for name, pool in self.model.pools.items():
            pool.random.setstate(seeds[name])


@wrong("torch.manual_seed in every step, so that whatever the caller draws is the same each time")
class Reseeded(labkit.Step):
    def run(self, batch):
        torch.manual_seed(0)
        return super().run(batch)


@wrong("the losses that were returned are overwritten by the next step")
class LossesOverwritten(labkit.Step):
    static = None

    def run(self, batch):
        losses = super().run(batch)
        if self.static is None:
            self.static = {name: torch.empty_like(loss) for name, loss in losses.items()}
        for name, loss in losses.items():
            self.static[name].copy_(loss)
        return dict(self.static)


@wrong("the caller's pictures are rounded to bfloat16 in place", "bf16")
class RoundedInPlace(labkit.Step):
    def inputs(self, real_a, real_b):
        for pictures in (real_a, real_b):
            pictures.copy_(pictures.bfloat16())
        return super().inputs(real_a, real_b)


@wrong("every tenth update of each player is left out")
class TenthSkipped(labkit.Step):
    taken = 0

    def update(self, player):
        self.taken += 1
        if self.taken % 20 in (19, 0):
            self.optimizers[player].zero_grad()
        else:
            super().update(player)


class _Decay(Adam):
    def one(self, w, state, group):
        w *= 1 - group["lr"] * 0.01
        super().one(w, state, group)


@wrong("AdamW's usual decay of 0.01, which its groups do not tell", "batched")
class Decayed(labkit.Step):
    optimizer = with_adam(_Decay)


@wrong("generators are judged by a moving average of the discriminators")
class AveragedJudges(labkit.Step):
    average = None

    def learn(self, player, batch):
        weights = self.players["discriminators"]
        now = [w.detach().clone() for w in weights]
        if player != "generators":
            return super().learn(player, batch)
        self.average = self.average or [w.clone() for w in now]
        torch._foreach_lerp_(self.average, now, 0.5)
        with torch.no_grad():
            torch._foreach_copy_(list(weights), self.average)
        try:
            return super().learn(player, batch)
        finally:
            with torch.no_grad():
                torch._foreach_copy_(list(weights), now)


@wrong("the discriminators' gradients are clipped to a norm of 0.5", "fused_adam")
class ClippedJudges(labkit.Step):
    def update(self, player):
        if player == "discriminators":
            torch.nn.utils.clip_grad_norm_(self.players[player], 0.5)
        super().update(player)


@wrong("the last bias of G_B gets no gradient, and never learns")
class OneBiasLost(labkit.Step):
    def backward(self, loss, player):
        loss.backward(inputs=self.players[player][:-1] if player == "generators" else self.players[player])


@wrong("G_A's adversarial loss is right, its gradient comes through D_B")
class OtherJudge(labkit.Step):
    def cycles(self, journeys):
        self.made = super().cycles(journeys)
        return self.made

    def generators(self, batch):
        losses = super().generators(batch)
        other = adversarial_loss(self.model.D_B(self.made[0].fake), True, self.model.gan_mode)
        self.made = None
        losses["G_A"] = other + (losses["G_A"] - other).detach()
        return losses


@wrong("float32 pictures travel as 8 bits, cut off instead of rounded")
class CutTo8Bits(labkit.Step):
    def inputs(self, real_a, real_b):
        if real_a.dtype == torch.float32:
            real_a, real_b = (((x + 1) * 127.5).to(torch.uint8).float() / 127.5 - 1 for x in (real_a, real_b))
        return super().inputs(real_a, real_b)


@wrong("passes use weights rounded to bfloat16, and rounded again in every fourth step only")
class StaleCasts(labkit.Step):
    tolerance = "16-bit"
    taken = 0

    def run(self, batch):
        if self.taken % 4 == 0:
            self.casts = {p: [w.detach().bfloat16().to(w.dtype) for w in ws] for p, ws in self.players.items()}
        self.taken += 1
        return super().run(batch)

    def learn(self, player, batch):
        weights = [w for ws in self.players.values() for w in ws]
        now = [w.detach().clone() for w in weights]
        with torch.no_grad():
            torch._foreach_copy_(weights, [w for ws in self.casts.values() for w in ws])
        try:
            return super().learn(player, batch)
        finally:
            with torch.no_grad():
                torch._foreach_copy_(weights, now)


@wrong("above 40 pixels, the identity losses look at every second row")
class EverySecondRow(labkit.Step):
    def cycles(self, journeys):
        self.made = super().cycles(journeys)
        return self.made

    def generators(self, batch):
        losses, (to_b, to_a) = super().generators(batch), self.made
        self.made, model = None, self.model
        if batch["real_a"].shape[2] > 40:
            for name, same, real in (("idt_A", to_b.same, batch["real_b"]), ("idt_B", to_a.same, batch["real_a"])):
                weight = (model.lambda_b if name == "idt_A" else model.lambda_a) * model.lambda_identity
                losses[name] = weight * F.l1_loss(same[:, :, ::2], real[:, :, ::2])
        return losses


@wrong("after 15 updates, every fourth time the discriminators see the fakes of the step before")
class LateFakes(labkit.Step):
    taken = 0

    def discriminators(self, batch):
        self.taken += 1
        now = {name: batch[name] for name in ("fake_a", "fake_b")}
        if self.taken > 15 and self.taken % 4 == 0 and self.before["fake_a"].shape == now["fake_a"].shape:
            batch.update(self.before)
        self.before = now
        return super().discriminators(batch)


def _norm_outside(layer, original, x):
    var, mean = torch.var_mean(x, (2, 3), keepdim=True, correction=0)
    return (x - mean) / (var.sqrt() + layer.eps)


@wrong("instance norm adds eps to the deviation in place of the variance")
class EpsOutside(labkit.Step):
    def learn(self, player, batch):
        with patched(self.model, {nn.InstanceNorm2d: _norm_outside}):
            return super().learn(player, batch)


@wrong("backward without inputs: the discriminators keep the gradient of the generators' loss")
class Leaking(labkit.Step):
    def backward(self, loss, player):
        loss.backward()


@wrong("moments are the step's own, in no state_dict, and zero after loading")
class OwnMoments(labkit.Step):
    own = None

    def update(self, player):
        weights, (group,) = self.players[player], self.optimizers[player].param_groups
        self.own = self.own or {}
        if player not in self.own:
            self.own[player] = [0, [torch.zeros_like(w) for w in weights], [torch.zeros_like(w) for w in weights]]
        self.own[player][0] += 1
        (b1, b2), (t, ms, vs) = group["betas"], self.own[player]
        with torch.no_grad():
            for w, m, v in zip(weights, ms, vs, strict=True):
                m.lerp_(w.grad, 1 - b1)
                v.mul_(b2).addcmul_(w.grad, w.grad, value=1 - b2)
                w -= group["lr"] / (1 - b1**t) * m / ((v / (1 - b2**t)).sqrt() + group["eps"])
        self.optimizers[player].zero_grad()

    def load_state_dict(self, state):
        super().load_state_dict(state)
        self.own = None


@wrong("the pools' decisions of the first step are kept as constants", "fused_adam")
class StaticDraws(labkit.Step):
    static = None

    def inputs(self, real_a, real_b):
        batch = super().inputs(real_a, real_b)
        draws = {name: value for name, value in batch.items() if name.startswith("draw")}
        if self.static is None or len(self.static["draw_fake_A"]) != len(real_a):
            self.static = draws
        return {**batch, **self.static}


@wrong("float16 with the losses times 1024, which the gradients are never divided by")
class NeverUnscaled(labkit.Step):
    tolerance = "16-bit"

    def losses(self, player, batch):
        with torch.autocast(batch["real_a"].device.type, torch.float16):
            return super().losses(player, batch)

    def backward(self, loss, player):
        super().backward(loss * 1024, player)


@wrong("scale_lr multiplies the rate there is, so factors compound")
class Compounding(labkit.Step):
    def scale_lr(self, factor):
        for player, optimizer in self.optimizers.items():
            for group in optimizer.param_groups:
                group["lr"] *= factor
            self.lr_now[player] = float(optimizer.param_groups[0]["lr"])


@wrong("to save memory, fakes are made again for the discriminators, by generators that have learned meanwhile")
class FakesAgain(labkit.Step):
    def discriminators(self, batch):
        with torch.no_grad():
            batch["fake_b"], batch["fake_a"] = self.model.G_A(batch["real_a"]), self.model.G_B(batch["real_b"])
        return super().discriminators(batch)


def _folded(network, picture):
    if network.training:
        return type(network).forward(network, picture)
    if "folded" not in vars(network):
        vars(network)["folded"] = copy.deepcopy(network.model)
    return vars(network)["folded"](picture)


@wrong("in evaluation, generators use a copy of their layers made at the first translation")
class FoldedOnce(labkit.Step):
    def build(self, betas):
        for network in (self.model.G_A, self.model.G_B):
            vars(network)["forward"] = types.MethodType(_folded, network)
        return super().build(betas)


# ---- right


@right("autograd.grad gives the same gradients")
class AutogradGrad(labkit.Step):
    def backward(self, loss, player):
        weights = self.players[player]
        for weight, gradient in zip(weights, torch.autograd.grad(loss, weights), strict=True):
            weight.grad = gradient


@right("Adam from the paper")
class HandAdam(labkit.Step):
    optimizer = with_adam(Adam)


class _Flat(Adam):
    def step(self, closure=None):
        with torch.no_grad():
            for group in self.param_groups:
                weights = [w for w in group["params"] if w.grad is not None]
                states = [self.state_of(w) for w in weights]
                (b1, b2), t = group["betas"], states[0]["step"].item()
                w, g, m, v = (
                    torch.cat([x.flatten() for x in rows])
                    for rows in (
                        weights,
                        [w.grad for w in weights],
                        [s["exp_avg"] for s in states],
                        [s["exp_avg_sq"] for s in states],
                    )
                )
                m.lerp_(g, 1 - b1)
                v.mul_(b2).addcmul_(g, g, value=1 - b2)
                w.addcdiv_(m, (v / (1 - b2**t)).sqrt().add_(group["eps"]), value=-float(group["lr"]) / (1 - b1**t))
                sizes = [x.numel() for x in weights]
                for weight, state, *new in zip(weights, states, *(x.split(sizes) for x in (w, m, v)), strict=True):
                    for to, source in zip((weight, state["exp_avg"], state["exp_avg_sq"]), new, strict=True):
                        to.copy_(source.view_as(to))


@right("Adam on one flat vector; all weights of a player are always updated together, so one count is enough")
class FlatAdam(labkit.Step):
    optimizer = with_adam(_Flat)


@right("Adam's own foreach implementation", "batched")
class Foreach(labkit.Step):
    def adam_options(self):
        return {**super().adam_options(), "foreach": True}


@right("checkpoints around residual blocks; instance norm keeps no statistics", "batched")
class BlocksAgain(labkit.Step):
    def learn(self, player, batch):
        kinds = {type(layer) for layer in self.model.modules() if type(layer).__name__ == "ResidualBlock"}

        def again(layer, original, x):
            return checkpoint(original, x, use_reentrant=False, preserve_rng_state=False)

        with patched(self.model, dict.fromkeys(kinds, again)):
            return super().learn(player, batch)


@right("pictures are copied into one of two buffers in turn, before anything reads them")
class DoubleBuffered(labkit.Step):
    taken = 0

    def inputs(self, real_a, real_b):
        buffers, self.taken = vars(self).setdefault("buffers", {}), self.taken + 1
        copies = []
        for name, pictures in (("a", real_a), ("b", real_b)):
            key = (name, self.taken % 2, pictures.shape, pictures.dtype)
            copies.append(buffers.setdefault(key, torch.empty_like(pictures)).copy_(pictures))
        return super().inputs(*copies)


def _norm_by_hand(layer, original, x):
    var, mean = torch.var_mean(x, (2, 3), keepdim=True, correction=0)
    return (x - mean) * torch.rsqrt(var + layer.eps)


@right("weights and pictures are channels last; instance norm by its formula, since PyTorch's has a bug there")
class LastByHand(labkit.Step):
    def build(self, betas):
        self.model.to(memory_format=torch.channels_last)
        return super().build(betas)

    def inputs(self, real_a, real_b):
        return super().inputs(*(x.contiguous(memory_format=torch.channels_last) for x in (real_a, real_b)))

    def learn(self, player, batch):
        with patched(self.model, {nn.InstanceNorm2d: _norm_by_hand}):
            return super().learn(player, batch)


@right("generators learn from one picture after the other, each weighted by its share of the batch")
class PictureByPicture(labkit.Step):
    share = 1.0

    def learn(self, player, batch):
        if player != "generators":
            return super().learn(player, batch)
        n, losses = len(batch["real_a"]), {}
        parts = [{name: batch[name][i : i + 1] for name in ("real_a", "real_b")} for i in range(n)]
        self.share = 1 / n
        for part in parts:
            for name, loss in super().learn(player, part).items():
                losses[name] = losses.get(name, 0) + loss / n
        self.share = 1.0
        for name in ("fake_a", "fake_b"):
            batch[name] = torch.cat([part[name] for part in parts])
        return losses

    def backward(self, loss, player):
        super().backward(loss * self.share, player)


@right("real and fake pictures through a discriminator under vmap")
class Mapped(labkit.Step):
    def judge(self, discriminator, real, fake):
        return tuple(torch.vmap(discriminator)(torch.stack([real, fake])).unbind())


@right("float16 with a fixed scale of 64 for the losses, which gradients are divided by")
class FixedScale(labkit.Step):
    tolerance = "16-bit"

    def losses(self, player, batch):
        with torch.autocast(batch["real_a"].device.type, torch.float16):
            return super().losses(player, batch)

    def backward(self, loss, player):
        super().backward(loss * 64, player)
        torch._foreach_div_([w.grad for w in self.players[player]], 64)


class _BySize(Adam):
    def step(self, closure=None):
        with torch.no_grad():
            for group in self.param_groups:
                weights = sorted((w for w in group["params"] if w.grad is not None), key=lambda w: -w.numel())
                states = [self.state_of(w) for w in weights]
                grads = [w.grad for w in weights]
                ms, vs = ([s[name] for s in states] for name in ("exp_avg", "exp_avg_sq"))
                (b1, b2), t = group["betas"], states[0]["step"].item()
                torch._foreach_lerp_(ms, grads, 1 - b1)
                torch._foreach_mul_(vs, b2)
                torch._foreach_addcmul_(vs, grads, grads, 1 - b2)
                below = torch._foreach_sqrt(vs)
                torch._foreach_div_(below, (1 - b2**t) ** 0.5)
                torch._foreach_add_(below, group["eps"])
                torch._foreach_addcdiv_(weights, ms, below, -float(group["lr"]) / (1 - b1**t))


@right("Adam for all weights together, the largest first")
class BySize(labkit.Step):
    optimizer = with_adam(_BySize)


@right("the discriminators' losses in the other order, and as one sum of squares", "batched")
class OneSum(labkit.Step):
    def learn(self, player, batch):
        losses = self.losses(player, batch)
        total = torch.stack(list(losses.values())[::-1]).sum()
        self.backward(total, player)
        return {name: loss.detach() for name, loss in losses.items()}

    def discriminators(self, batch):
        losses = {}
        for name, of, domain in (("D_B", self.model.D_B, "a"), ("D_A", self.model.D_A, "b")):
            fake = self.pooled(f"fake_{domain.upper()}", batch[f"fake_{domain}"], batch)
            on_real, on_fake = self.judge(of, batch[f"real_{domain}"], fake)
            losses[name] = ((on_real - 1).square().sum() + on_fake.square().sum()) / (2 * on_real.numel())
        return losses


@right("the targets 1 and 0 are kept by shape and type")
class KeptTargets(labkit.Step):
    def _distance(self, verdict, answer):
        kept, key = vars(self).setdefault("kept", {}), (verdict.shape, verdict.dtype, answer)
        if key not in kept:
            kept[key] = torch.full_like(verdict, answer, requires_grad=False).detach()
        return F.mse_loss(verdict, kept[key])

    def discriminators(self, batch):
        losses = {}
        for name, of, domain in (("D_A", self.model.D_A, "b"), ("D_B", self.model.D_B, "a")):
            fake = self.pooled(f"fake_{domain.upper()}", batch[f"fake_{domain}"], batch)
            on_real, on_fake = self.judge(of, batch[f"real_{domain}"], fake)
            losses[name] = 0.5 * (self._distance(on_real, 1.0) + self._distance(on_fake, 0.0))
        return losses


@torch.jit.script
def _leaky(x: Tensor, slope: float) -> Tensor:
    return torch.where(x > 0, x, x * slope)


@right("scripted activations, beside their input")
class Scripted(labkit.Step):
    def learn(self, player, batch):
        slopes = {
            nn.ReLU: lambda layer, original, x: _leaky(x, 0.0),
            nn.LeakyReLU: lambda layer, original, x: _leaky(x, layer.negative_slope),
        }
        with patched(self.model, slopes):
            return super().learn(player, batch)


@right("generators are judged by frozen copies of the discriminators, made in each step")
class CopiedJudges(labkit.Step):
    def generators(self, batch):
        judges = self.model.D_A, self.model.D_B
        self.model.D_A, self.model.D_B = (copy.deepcopy(judge).requires_grad_(False) for judge in judges)
        try:
            return super().generators(batch)
        finally:
            self.model.D_A, self.model.D_B = judges


@right("two batches through a network as one, picture by picture in turn")
class Interleaved(labkit.Step):
    def both(self, network, first, second):
        made = network(torch.stack([first, second], 1).flatten(0, 1))
        return made[0::2], made[1::2]


@right("real pictures are judged while the generators learn: the discriminators do not change meanwhile")
class JudgedEarly(labkit.Step):
    ready = None

    def generators(self, batch):
        losses = super().generators(batch)
        self.ready = [self.model.D_A(batch["real_b"]), self.model.D_B(batch["real_a"])]
        return losses

    def judge(self, discriminator, real, fake):
        return self.ready.pop(0), discriminator(fake)


@right("optimisers become fused ones at the first update, with state and rate of the plain ones")
class LazilyFused(labkit.Step):
    def update(self, player):
        plain = self.optimizers[player]
        if not plain.defaults.get("fused"):
            (group,) = plain.param_groups
            fused = torch.optim.Adam(group["params"], lr=group["lr"], betas=group["betas"], fused=True)
            for weight, state in plain.state.items():
                fused.state[weight] = dict(state)
            self.optimizers[player] = fused
        super().update(player)


@right("both players are updated at the end: the discriminators' losses need the old generators' fakes only")
class UpdatedTogether(labkit.Step):
    def run(self, batch):
        losses = {}
        for player in self.players:
            losses |= self.learn(player, batch)
        for player in self.players:
            with self.mark(f"{player} optimizer"):
                self.update(player)
        return losses


@right("gradients are views of one buffer, which is set to zero after each update")
class FlatGradients(labkit.Step):
    def backward(self, loss, player):
        weights = self.players[player]
        if any(w.grad is None for w in weights):
            flat = torch.zeros(sum(w.numel() for w in weights), dtype=weights[0].dtype, device=weights[0].device)
            for weight, part in zip(weights, flat.split([w.numel() for w in weights]), strict=True):
                weight.grad = part.view_as(weight)
        super().backward(loss, player)

    def update(self, player):
        self.optimizers[player].step()
        self.optimizers[player].zero_grad(set_to_none=False)


class _L1(torch.autograd.Function):
    @staticmethod
    def forward(ctx, made, real):
        ctx.difference = made - real
        return ctx.difference.abs().mean()

    @staticmethod
    def backward(ctx, gradient):
        return gradient * ctx.difference.sign() / ctx.difference.numel(), None


@right("the cycle's L1 loss with its gradient by hand")
class HandL1(labkit.Step):
    cycle_loss = staticmethod(lambda real, made, weight=10.0: weight * _L1.apply(made, real))


@right("instance norm by its formula")
class HandNorm(labkit.Step):
    def learn(self, player, batch):
        with patched(self.model, {nn.InstanceNorm2d: _norm_by_hand}):
            return super().learn(player, batch)


def _pad_by_index(layer, original, x):
    left, r, top, bottom = layer.padding
    for dim, before, after in ((2, top, bottom), (3, left, r)):
        n = x.shape[dim]
        places = torch.arange(-before, n + after, device=x.device).abs()
        x = x.index_select(dim, torch.where(places >= n, 2 * (n - 1) - places, places))
    return x


@right("reflection padding by picking rows and columns")
class PadByIndex(labkit.Step):
    def learn(self, player, batch):
        with patched(self.model, {nn.ReflectionPad2d: _pad_by_index}):
            return super().learn(player, batch)


@right("the learning rate is a tensor, which scale_lr writes to")
class RateInTensor(labkit.Step):
    def optimizer(self, weights, lr, betas):
        return torch.optim.Adam(weights, lr=torch.tensor(lr, dtype=torch.float64), betas=betas, foreach=False)


@right("the two cycles run in two threads, which share nothing but weights that they read")
class Threads(labkit.Step):
    def cycles(self, journeys):
        with ThreadPoolExecutor(2) as threads:
            return list(threads.map(lambda journey: self.cycle(*journey), journeys))


# ---- judging


def judge(name: str) -> dict[str, Any]:
    """The verdict of `labkit.compare` on one case."""
    case, begin = CASES[name], time.perf_counter()

    def model() -> labkit.CycleGAN:
        return labkit.CycleGAN("resnet_3blocks", discriminator="n_layers", n_layers=2, ngf=4, ndf=4, norm=case.norm)

    emulate = {"emulate": True} if "bf16" in case.on else {}
    steps = {
        "baseline": lambda: labkit.make_step(model()),
        "given": lambda: labkit.make_step(model(), case.step, *case.on, **emulate),
    }
    torch.manual_seed(1)
    batch = tuple(torch.rand(case.batch, 3, 48, 48) * 2 - 1 for _ in range(2))
    table = labkit.compare(steps, batch, rounds=6, warmup=1, limit_s=1)
    verdict, why = table.loc["given", ["verdict", "why"]]
    return {"name": name, "wrong": case.wrong, "verdict": verdict, "why": why, "s": time.perf_counter() - begin}


def apart(name: str) -> dict[str, Any]:
    """`judge` in a process of its own."""
    command, begin = [sys.executable, "-m", "benchmarks.gates.steps", name], time.perf_counter()
    try:
        run = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_S)
        row = json.loads(run.stdout.splitlines()[-1]) if run.returncode == 0 else None
        failure = run.stderr[-600:]
    except subprocess.TimeoutExpired:
        row, failure = None, "timeout"
    seconds = time.perf_counter() - begin
    row = row or {"name": name, "wrong": CASES[name].wrong, "verdict": "(no verdict)", "why": failure, "s": seconds}
    print(line(row), flush=True)
    return row


def line(row: dict[str, Any]) -> str:
    kind = "wrong" if row["wrong"] else "right"
    accepted = row["verdict"] in ("faster", "slower", "no difference")
    mark = "" if accepted != row["wrong"] else "  <<<"
    return f"{row['name']:20} {kind} {row['verdict']:15} {row['s']:4.0f} s  {row['why']}{mark}"


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    if sys.argv[1:]:
        for given in sys.argv[1:]:
            print(json.dumps(judge(given)))
    else:
        with ThreadPoolExecutor(2) as two:
            rows = list(two.map(apart, CASES))
        Path("out").mkdir(exist_ok=True)
        Path("out/gates.json").write_text(json.dumps(rows, indent=1))
        print()
        for row in rows:
            print(line(row))
