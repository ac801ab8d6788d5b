"""Networks, losses, schedules and callbacks of a user's own: do they train, or does labkit say in a sentence why not?

    python benchmarks/gates/networks.py [part+part of a name ...] [--bad] [--list] [--timeout 90]

Expected is what was written down before the first run; where a slash is in it, both are good. "right": 2 steps,
resumed to 4 with the same weights as an unbroken run, `load_model`, and a picture of 100 x 76 pixels translated, with a
moving average where that makes sense. "sentence": a `labkit.LabkitError` before any weight has changed, which names the
thing. "sentence, late": one later in the first call, as docs say of losses that are not finite. "VAGUE": one that does
not name it. "RAW": another exception there. "LATE": steps were computed, then it failed, or a resumed run differs.
"""

import sys

sys.path.insert(0, sys.path.pop(0).removesuffix("/gates"))  # this folder's numbers.py would hide Python's

import csv
import functools
import re
import warnings
from collections.abc import Callable
from typing import Any

import torch
from gates import gate
from PIL import Image
from torch import Tensor, nn
from torch.nn.utils import parametrizations

import labkit

CASES: dict[str, Callable[[], gate.Result]] = {}
EXPECTED: dict[str, str] = {}


class Net(nn.Module):
    """A small generator. Cases change its parts."""

    size_multiple, min_size = 4, 16

    def __init__(self, *middle: nn.Module, first: nn.Module | None = None, change: Any = lambda self, x: x) -> None:
        super().__init__()
        self.first = first or nn.Conv2d(3, 4, 4, 2, 1)
        self.middle = nn.Sequential(nn.ReLU(), *middle)
        self.last = nn.ConvTranspose2d(4, 3, 4, 2, 1)
        self.change = change

    def forward(self, picture: Tensor) -> Tensor:
        return self.change(self, torch.tanh(self.last(self.middle(self.first(picture)))))


class Judge(nn.Module):
    """A small discriminator."""

    def __init__(self, change: Any = lambda x: x, first: nn.Module | None = None) -> None:
        super().__init__()
        self.layers = nn.Sequential(first or nn.Conv2d(3, 4, 4, 2, 1), nn.LeakyReLU(0.2), nn.Conv2d(4, 1, 3, padding=1))
        self.change = change

    def forward(self, picture: Tensor) -> Tensor:
        return self.change(self.layers(picture))


def train(folder: str, steps: int, setup: dict[str, Any], changed: list[bool]) -> labkit.Step:
    torch.manual_seed(0)
    changed[:] = [False]
    own = {name: setup[name]() for name in ("generator", "discriminator") if name in setup}
    small = {"generator": "resnet_3blocks", "discriminator": "n_layers", "n_layers": 1, "ngf": 4, "ndf": 4}
    model = labkit.CycleGAN(**{**small, **own, **setup.get("model", {})})
    setup.get("prepare", lambda model: None)(model)
    before = gate.weights(model)
    try:
        step = labkit.make_step(model, *setup.get("classes", ()))
        fit = {name: value() for name, value in setup.get("fit", {}).items()}
        if "schedule_of" in setup:
            fit["schedule"] = setup["schedule_of"](step)
        labkit.fit(step, labkit.fruit(4, 32), steps, checkpoint=folder, **fit)
        return step
    finally:
        after = gate.weights(model)  # a lazy layer may have more of them
        changed[:] = [not gate.equal(before, {name: after[name] for name in before})]


def examine(names: str, setup: dict[str, Any]) -> gate.Result:
    warnings.simplefilter("ignore")
    changed: list[bool] = []
    try:
        train("run", 2, setup, changed)
    except Exception as error:
        if any(changed) and isinstance(error, labkit.LabkitError) and re.search(names, str(error), re.IGNORECASE):
            return "sentence, late", gate.sentence(error)
        if any(changed):
            return "LATE", f"in the first call, after a step: {gate.sentence(error)}"
        if not isinstance(error, labkit.LabkitError):
            return "RAW", gate.sentence(error)
        return "sentence" if re.search(names, str(error), re.IGNORECASE) else "VAGUE", gate.sentence(error)
    try:
        resumed = train("run", 4, setup, changed)
        own = {name: setup[name]() for name in ("generator", "discriminator") if name in setup}
        loaded = labkit.load_model("run", **own)
        Image.effect_noise((100, 76), 60).convert("RGB").save("a.png")
        labkit.translate(loaded, "a.png", "b.png")
        size = Image.open("b.png").size
    except Exception as error:
        return "LATE", gate.sentence(error)
    if size != (100, 76):
        return "LATE", f"the translation has {size}"
    unbroken = train("unbroken", 4, setup, changed)
    if not gate.equal(gate.weights(resumed.model), gate.weights(unbroken.model)):
        return "LATE", "the resumed run differs from an unbroken one"
    if not gate.equal(gate.weights(loaded), gate.weights(labkit.load_model("unbroken", **own))):
        return "LATE", "load_model gives others than those of the unbroken run"
    with open("run/losses.csv", newline="") as file:
        losses = len(list(csv.reader(file))) - 1
    return ("right", "") if losses == 4 else ("LATE", f"losses.csv has {losses} rows")


def case(name: str, expected: str, names: str = "", **setup: Any) -> None:
    """A case: what is expected, what a sentence has to name, and how it is set up."""
    EXPECTED[name] = expected
    CASES[name] = functools.partial(examine, names, setup)


EMA = {"ema": lambda: 0.5}


class UNet(nn.Module):
    """Four halvings, so multiples of 16, which it does not say."""

    def __init__(self) -> None:
        super().__init__()
        self.down = nn.ModuleList(nn.Conv2d(3 if not i else 4, 4, 4, 2, 1) for i in range(4))
        self.up = nn.ModuleList(nn.ConvTranspose2d(4 if i == 3 else 8, 4, 4, 2, 1) for i in reversed(range(4)))
        self.last = nn.Conv2d(4, 3, 3, padding=1)

    def forward(self, x: Tensor) -> Tensor:
        kept = []
        for layer in self.down:
            x = torch.relu(layer(x))
            kept.append(x)
        kept.pop()
        for number, layer in enumerate(self.up):
            x = torch.relu(layer(x if not number else torch.cat([x, kept.pop()], 1)))
        return torch.tanh(self.last(x))


class ViT(nn.Module):
    """Positions for pictures of 32 pixels only."""

    def __init__(self) -> None:
        super().__init__()
        self.patches = nn.Conv2d(3, 8, 8, 8)
        self.position = nn.Parameter(torch.zeros(1, 16, 8))
        self.block = nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, batch_first=True)
        self.back = nn.ConvTranspose2d(8, 3, 8, 8)

    def forward(self, x: Tensor) -> Tensor:
        x = self.patches(x)
        tokens = self.block(x.flatten(2).transpose(1, 2) + self.position)
        return torch.tanh(self.back(tokens.transpose(1, 2).reshape(x.shape)))


def says(cls: type, multiple: int, smallest: int) -> Any:
    network = cls()
    network.size_multiple, network.min_size = multiple, smallest
    return network


SIZES = "size|multiple|pixel"
# A picture of 100 x 76 does not fit these, unless their multiple is known. A trial with a second size would tell.
case("U-Net of multiples of 16, unsaid", "sentence", SIZES, generator=UNet, fit=EMA)
case("U-Net of multiples of 16, said", "right", generator=lambda: says(UNet, 16, 16), fit=EMA)
case("ViT of one size, unsaid", "sentence", SIZES, generator=ViT)
case("ViT of one size, said", "sentence", SIZES, generator=lambda: says(ViT, 32, 32))
new_norm, old_norm = parametrizations.spectral_norm, nn.utils.spectral_norm
new_weight, old_weight = parametrizations.weight_norm, nn.utils.weight_norm
for label, norm in (("new", new_norm), ("old", old_norm)):
    judge = functools.partial(lambda norm: Judge(first=norm(nn.Conv2d(3, 4, 4, 2, 1))), norm)
    case(f"spectral_norm, {label}, discriminator", "right", discriminator=judge)
for label, norm in (
    ("spectral_norm, new", new_norm),
    ("spectral_norm, old", old_norm),
    ("weight_norm, new", new_weight),
):
    net = functools.partial(lambda norm: Net(first=norm(nn.Conv2d(3, 4, 4, 2, 1))), norm)
    case(f"{label}, generator", "right", generator=net, fit=EMA)
case(
    "weight_norm, old, generator",
    "right/sentence",
    generator=lambda: Net(first=old_weight(nn.Conv2d(3, 4, 4, 2, 1))),
    fit=EMA,
)
case("LazyConv2d, generator", "sentence", "lazy|initiali", generator=lambda: Net(first=nn.LazyConv2d(4, 4, 2, 1)))
case(
    "LazyConv2d, discriminator",
    "sentence",
    "lazy|initiali",
    discriminator=lambda: Judge(first=nn.LazyConv2d(4, 4, 2, 1)),
)
plain_net = functools.partial(nn.Sequential, nn.Conv2d(3, 3, 3, padding=1), nn.Tanh())
case("ScriptModule", "right/sentence", generator=lambda: torch.jit.script(plain_net()), fit=EMA)
case("torch.compile'd", "right/sentence", generator=lambda: torch.compile(plain_net(), backend="eager"))
case("DataParallel", "right", generator=lambda: nn.DataParallel(plain_net()), fit=EMA)
case("bfloat16 generator", "right/sentence", "bfloat16|float", generator=lambda: Net().bfloat16())
case("float64 generator", "right/sentence", "float64|float|double", generator=lambda: Net().double())
case("bfloat16 part", "sentence", "bfloat16|float", generator=lambda: Net(nn.Conv2d(4, 4, 1).bfloat16()))
case(
    "discriminator of two scales, a list",
    "sentence",
    "list|tensor",
    discriminator=lambda: Judge(lambda x: [x, x[:, :, ::2]]),
)
case("discriminator of a dict", "sentence", "dict|tensor", discriminator=lambda: Judge(lambda x: {"verdict": x}))
case("discriminator with sigmoid", "right", discriminator=lambda: Judge(torch.sigmoid))
case("discriminator of a scalar", "right", discriminator=lambda: Judge(torch.mean))
case("discriminator of (B,)", "right", discriminator=lambda: Judge(lambda x: x.mean((1, 2, 3))))
case(
    "discriminator without a graph",
    "sentence",
    "gradient|graph|discriminator",
    discriminator=lambda: Judge(Tensor.detach),
)
case(
    "discriminator of integers",
    "sentence",
    "gradient|graph|float|int",
    discriminator=lambda: Judge(lambda x: (x > 0).long()),
)
case("generator of a tuple", "sentence", "tuple|tensor", generator=lambda: Net(change=lambda self, x: (x, x)))
case("generator of a larger picture", "sentence", "size|shape", generator=lambda: Net(nn.Upsample(scale_factor=2)))
case("generator of one channel", "sentence", "channel|shape", generator=lambda: Net(change=lambda self, x: x[:, :1]))
case(
    "generator without a graph",
    "sentence",
    "gradient|graph|generator",
    generator=lambda: Net(change=lambda self, x: x.detach()),
)
case("generator without tanh, beyond [-1, 1]", "right", generator=lambda: nn.Conv2d(3, 3, 3, padding=1), fit=EMA)
case(
    "generator of NaN",
    "sentence/sentence, late",
    "finite|nan",
    generator=lambda: Net(change=lambda self, x: x * float("nan")),
)


class InPlace(Net):
    def forward(self, picture: Tensor) -> Tensor:
        return super().forward(picture.mul_(0.5))


case("in place on its input", "right/sentence", "in place|in-place|input", generator=InPlace)
case("noise", "right", generator=lambda: Net(change=lambda self, x: x + 0.1 * torch.randn_like(x)), fit=EMA)
case("dropout", "right", generator=lambda: Net(nn.Dropout(0.5)), fit=EMA)
case("batch norm", "right", generator=lambda: Net(nn.BatchNorm2d(4)), fit=EMA)
case("batch norm, momentum=None", "right", generator=lambda: Net(nn.BatchNorm2d(4, momentum=None)), fit=EMA)
case(
    "batch norm, discriminator",
    "right",
    discriminator=lambda: Judge(first=nn.Sequential(nn.Conv2d(3, 4, 4, 2, 1), nn.BatchNorm2d(4))),
)


def tied() -> Net:
    network = Net(nn.Conv2d(4, 4, 3, padding=1), nn.Conv2d(4, 4, 3, padding=1))
    network.middle[2].weight = network.middle[1].weight
    return network


def frozen(network: nn.Module, whole: bool) -> nn.Module:
    (network if whole else network.first).requires_grad_(False)
    return network


def with_unused(network: nn.Module) -> nn.Module:
    network.unused = nn.Linear(2, 2)
    return network


case("tied weights", "right", generator=tied, fit=EMA)
case("frozen part", "right", generator=lambda: frozen(Net(), False), fit=EMA)
case("all of the generators frozen", "sentence", "frozen|requires_grad", generator=lambda: frozen(Net(), True))
case("all of G_B frozen", "right", generator=Net, prepare=lambda model: model.G_B.requires_grad_(False), fit=EMA)
case("generator without weights", "sentence", "weight|parameter", generator=nn.Tanh)
case("a class, not a module", "sentence", "module|class|instance", generator=lambda: Net)
case("a function, not a module", "sentence", "module", generator=lambda: torch.tanh)
case("generator of two arguments", "sentence", "forward|argument", generator=lambda: nn.Bilinear(3, 3, 3))
case("unused weight", "right", generator=lambda: with_unused(Net()), fit=EMA)
case("affine instance norm", "right", generator=lambda: Net(nn.InstanceNorm2d(4, affine=True)), fit=EMA)


def loss(compute: Callable[[Any, Any], Any], name: Any = "mine") -> dict[str, Any]:
    """A step with one more loss."""

    class More(labkit.models.CycleGANStep):
        def generators(self, batch: Any) -> Any:
            losses = super().generators(batch)
            losses[name] = compute(self, batch)
            return losses

    return {"classes": [More]}


class Perceptual(labkit.models.CycleGANStep):
    """The usual way: a frozen network in a global."""

    net = nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU(), nn.Conv2d(4, 4, 3)).requires_grad_(False)

    def generators(self, batch: Any) -> Any:
        losses = super().generators(batch)
        fake = self.model.G_A(batch["real_a"])
        losses["perceptual"] = (self.net(fake) - self.net(batch["real_a"])).square().mean()
        return losses


def mean(self: Any, batch: Any) -> Tensor:
    return self.model.G_A(batch["real_a"]).abs().mean()


case("perceptual loss, frozen net", "right", classes=[Perceptual], fit=EMA)
case("one more loss", "right", **loss(mean))
case(
    "loss of shape (B,)",
    "sentence",
    "mine",
    **loss(lambda s, b: s.model.G_A(b["real_a"]).abs().mean((1, 2, 3)).expand(2)),
)
case("loss of shape (1,)", "right/sentence", **loss(lambda s, b: mean(s, b)[None]))
case("loss of a picture's shape", "sentence", "mine", **loss(lambda s, b: s.model.G_A(b["real_a"]).abs()))
case("float loss", "right/sentence", "mine", **loss(lambda s, b: 0.5))
case("None as loss", "sentence", "mine", **loss(lambda s, b: None))
case("loss without a graph", "right/sentence", **loss(lambda s, b: mean(s, b).detach()))
case("float64 loss", "right/sentence", **loss(lambda s, b: mean(s, b).double()))
case("complex loss", "sentence", "mine|complex", **loss(lambda s, b: mean(s, b) * (1 + 0j)))
case("infinite loss", "sentence/sentence, late", "mine|finite", **loss(lambda s, b: mean(s, b) / 0))
case("loss named by a number", "sentence", "name|text|str|3", **loss(mean, 3))
case("loss named with a comma and a line", "right/sentence", **loss(mean, 'a,"b"\nc'))
case("loss named step", "right/sentence", "step", **loss(mean, "step"))


class Forgets(labkit.models.CycleGANStep):
    def generators(self, batch: Any) -> Any:
        super().generators(batch)


class ForgetsRun(labkit.Step):
    def run(self, batch: Any) -> Any:
        super().run(batch)


class ForgetsLearn(labkit.Step):
    def learn(self, player: str, batch: Any) -> Any:
        super().learn(player, batch)


class ForgetsBuild(labkit.Step):
    def build(self, betas: Any) -> Any:
        super().build(betas)


class Sum(labkit.models.CycleGANStep):
    def generators(self, batch: Any) -> Any:
        return sum(super().generators(batch).values())


for cls in (Forgets, ForgetsRun, ForgetsLearn, ForgetsBuild, Sum):
    what = "a sum, not a dict" if cls is Sum else f"no return ({cls.__name__})"
    case(f"step with {what}", "sentence", "return|None|dict|" + cls.__name__, classes=[cls])


class Counting(labkit.Callback):
    def on_step(self, run: Any) -> None:
        pass


case("a callback, not a list", "sentence", "callback|list", fit={"callbacks": Counting})
case("a function, not a list", "sentence", "callback|list", fit={"callbacks": lambda: lambda run: None})
case("a callback's class", "sentence", "callback|class|Counting", fit={"callbacks": lambda: [Counting]})
case("two callbacks of a kind", "right", fit={"callbacks": lambda: (Counting(), Counting())})


def scheduler(step: Any) -> Any:
    optimizer = torch.optim.Adam(next(iter(step.players.values())))
    return torch.optim.lr_scheduler.LambdaLR(optimizer, lambda done: 0.5)


case("LambdaLR as schedule", "sentence", "schedule", schedule_of=scheduler)
case("schedule of a tensor", "right", fit={"schedule": lambda: lambda done: torch.tensor(1 / (1 + done))})
case("schedule of None", "sentence", "schedule", fit={"schedule": lambda: lambda done: None})
case("schedule below 0", "sentence", "schedule", fit={"schedule": lambda: lambda done: -1.0})
case("schedule of two arguments", "sentence", "schedule", fit={"schedule": lambda: lambda done, steps: 1.0})
case("a number as schedule", "sentence", "schedule", fit={"schedule": lambda: 0.5})


def optimiser(make: Callable[[Any, float], Any]) -> dict[str, Any]:
    class With(labkit.Step):
        def optimizer(self, weights: Any, lr: float, betas: Any) -> Any:
            return make(weights, lr)

    return {"classes": [With]}


case("SGD", "right", **optimiser(lambda weights, lr: torch.optim.SGD(weights, lr, momentum=0.9, nesterov=True)))
case("RMSprop", "right", **optimiser(torch.optim.RMSprop))
case(
    "Adam with groups",
    "right",
    **optimiser(lambda w, lr: torch.optim.Adam([{"params": w[:2], "lr": 0.1}, {"params": w[2:]}], lr)),
)
case("LBFGS", "sentence", "closure|LBFGS", **optimiser(torch.optim.LBFGS))
case("SparseAdam", "sentence", "SparseAdam|sparse", **optimiser(torch.optim.SparseAdam))
case("no optimiser", "sentence", "optimi", **optimiser(lambda weights, lr: None))
case("an optimiser's class", "sentence", "optimi", **optimiser(lambda weights, lr: torch.optim.SGD))
case(
    "an optimiser of other weights",
    "sentence",
    "weight",
    **optimiser(lambda w, lr: torch.optim.SGD([nn.Parameter(torch.ones(1))], lr)),
)

if __name__ == "__main__":
    gate.run(CASES, __doc__, 90, EXPECTED)
