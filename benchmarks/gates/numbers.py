"""Kinds of numbers and objects, at each place where they enter a training: right, refused at once, or lost?

    python benchmarks/gates/numbers.py [part+part of a name ...] [--bad] [--list] [--timeout 60]

Trains 2 steps with a checkpoint, calls the same again up to step 4, and reads the run with `labkit.load_model`.
"right": the weights are those of an unbroken run of 4 steps with the plain Python value, bit for bit, and what was
written is read back with an equal value. "refused": labkit raised a sentence before any weight had changed;
"REFUSED, RAW": another exception did. "LOST": steps were computed and cannot be read back, or the resumed run differs
from its own unbroken one. "OTHER": it resumes, but differs from the plain value's run.
"""

import sys

sys.path.insert(0, sys.path.pop(0).removesuffix("/gates"))  # this folder's numbers.py would hide Python's

import collections
import dataclasses
import datetime
import enum
import functools
import os
import random
import types
from collections.abc import Callable, Mapping
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from gates import gate
from PIL import Image
from torch import nn

import labkit

Convert = Callable[[Any], Any]


class Int(int):
    pass


class Float(float):
    pass


class Str(str):
    pass


class Two(NamedTuple):
    first: Any
    second: Any


@dataclasses.dataclass
class Data:
    value: float = 0.25


class Colour(enum.Enum):
    RED = 1


def keyless(value: Any) -> int:
    return 0


def member(base: type[enum.Enum], x: Any) -> Any:
    """A member of an enumeration of this module, as a user's would be."""
    name = f"{base.__name__}_{str(x).replace('.', '_')}"
    if name not in globals():
        globals()[name] = base(name, {"IT": x}, module=__name__)
    return globals()[name].IT


def each(k: Convert, x: dict[str, float]) -> dict[str, Any]:
    return {key: k(value) for key, value in x.items()}


def typed(kind: torch.dtype, x: float) -> torch.Tensor:
    return torch.tensor(x).to(kind)


TYPES = (torch.float64, torch.float16, torch.bfloat16, torch.int64, torch.uint8, torch.bool, torch.complex64)
INTS: dict[str, Convert] = {
    "np.int64": np.int64,
    "np.uint8": np.uint8,
    "np.float64": np.float64,
    "0-d array": np.array,
    "1-element array": lambda x: np.array([x]),
    "0-d tensor": torch.tensor,
    "float": float,
    "Fraction": Fraction,
    "Decimal": Decimal,
    "IntEnum": lambda x: member(enum.IntEnum, x),
    "Enum": lambda x: member(enum.Enum, x),
    "int subclass": Int,
    "str": str,
}
FLOATS: dict[str, Convert] = {
    "np.float64": np.float64,
    "np.float32": np.float32,
    "np.float16": np.float16,
    "0-d array": np.array,
    "1-element array": lambda x: np.array([x]),
    "0-d tensor": torch.tensor,
    "0-d float64 tensor": lambda x: torch.tensor(x, dtype=torch.float64),
    "1-element tensor": lambda x: torch.tensor([x]),
    "nn.Parameter": lambda x: nn.Parameter(torch.tensor(x)),
    "Fraction": Fraction,
    "Decimal": lambda x: Decimal(str(x)),
    "float subclass": Float,
    "Enum": lambda x: member(enum.Enum, x),
    "str": str,
}
FEW_INTS = {kind: INTS[kind] for kind in ("np.int64", "np.float64", "0-d tensor", "float", "IntEnum", "str")}
FEW = {kind: FLOATS[kind] for kind in ("np.float64", "np.float32", "0-d array", "0-d tensor", "Fraction", "Decimal")}
WHOLE = {"np.int64": np.int64, "np.bool_": np.bool_, "IntEnum": lambda x: member(enum.IntEnum, int(x))}
TEXTS: dict[str, Convert] = {
    "np.str_": np.str_,
    "str subclass": Str,
    "StrEnum": lambda x: member(enum.StrEnum, x),
    "Enum": lambda x: member(enum.Enum, x),
    "0-d array": np.array,
}
FILES = {**TEXTS, "Path": Path, "bytes": os.fsencode, "Path subclass": type("Mine", (type(Path()),), {})}
PAIRS: dict[str, Convert] = {
    "list": list,
    "array": np.array,
    "tensor": torch.tensor,
    "namedtuple": lambda x: Two(*x),
    "np.float64s": lambda x: tuple(np.float64(one) for one in x),
    "np.float32s": lambda x: tuple(np.float32(one) for one in x),
    "0-d tensors": lambda x: tuple(torch.tensor(one) for one in x),
    "Fractions": lambda x: tuple(Fraction(str(one)) for one in x),
    "Decimals": lambda x: tuple(Decimal(str(one)) for one in x),
}
SIZES = {**PAIRS, "np.int64s": lambda x: tuple(np.int64(one) for one in x), "map": lambda x: map(int, x)}
RATES: dict[str, Convert] = {
    "OrderedDict": collections.OrderedDict,
    "defaultdict": lambda x: collections.defaultdict(float, x),
    "MappingProxyType": types.MappingProxyType,
    "np.str_ keys": lambda x: {np.str_(key): value for key, value in x.items()},
    "StrEnum keys": lambda x: {member(enum.StrEnum, key): value for key, value in x.items()},
    **{f"{kind}s": functools.partial(each, k) for kind, k in FLOATS.items()},
}
STATES: dict[str, Callable[[], Any]] = {
    **{kind: functools.partial(k, 0.25) for kind, k in FLOATS.items()},
    "np.int64": lambda: np.int64(3),
    "np.uint8": lambda: np.uint8(3),
    "np.bool_": lambda: np.bool_(True),
    "array": lambda: np.arange(6.0).reshape(2, 3),
    "array of texts": lambda: np.array(["a", "b"]),
    "array from a list": lambda: list(np.arange(3.0)),
    "int subclass": lambda: Int(3),
    "IntEnum": lambda: WHOLE["IntEnum"](3),
    "StrEnum": lambda: TEXTS["StrEnum"]("text"),
    "np.str_": lambda: np.str_("text"),
    "str subclass": lambda: Str("text"),
    "Enum": lambda: Colour.RED,
    "OrderedDict": lambda: collections.OrderedDict(b=1, a=2),
    "defaultdict": lambda: collections.defaultdict(int, a=1),
    "defaultdict of lambda": lambda: collections.defaultdict(lambda: 0, a=1),
    "Counter": lambda: collections.Counter("hello"),
    "deque": lambda: collections.deque([0.25, 0.5], maxlen=3),
    "dataclass": Data,
    "namedtuple": lambda: Two(1, 0.25),
    "tuple": lambda: (1, 0.25),
    "set": lambda: {1, 2},
    "dict with int keys": lambda: {0: 0.25, 1: 0.5},
    "dict with tuple keys": lambda: {(0, 1): 0.25},
    "dict with np.int64 keys": lambda: {np.int64(0): 0.25},
    "lambda": lambda: lambda x: x,
    "named function": lambda: keyless,
    "datetime": lambda: datetime.datetime(2026, 1, 2),
    "timedelta": lambda: datetime.timedelta(minutes=5),
    "Path": lambda: Path("out/run"),
    "torch.dtype": lambda: torch.float16,
    "torch.device": lambda: torch.device("cpu"),
    "torch.Size": lambda: torch.Size([2, 3]),
    "bfloat16 tensor": lambda: torch.ones(2, dtype=torch.bfloat16),
    "sparse tensor": lambda: torch.eye(2).to_sparse(),
    "tensor of a graph": lambda: torch.ones(2, requires_grad=True) * 2,
    "None": lambda: None,
    "complex": lambda: 1 + 2j,
    "bytes": lambda: b"text",
    "nan": lambda: float("nan"),
    "int over 64 bits": lambda: 2**70,
    "range": lambda: range(3),
    "random.getstate": lambda: random.Random(0).getstate(),
    "np.random state": lambda: np.random.default_rng(0).bit_generator.state,
    "RandomState state": lambda: np.random.RandomState(0).get_state(),
    "module": lambda: nn.Linear(1, 1),
}


class Net(nn.Module):
    """A generator with a state of its own."""

    size_multiple, min_size = 4, 16

    def __init__(self, extra: Any = None, buffer: torch.Tensor | None = None) -> None:
        super().__init__()
        self.layer = nn.Conv2d(3, 3, 3, padding=1)
        self.extra, self.has_extra = extra, extra is not None
        self.register_buffer("mine", buffer)

    def forward(self, picture: torch.Tensor) -> torch.Tensor:
        return torch.tanh(self.layer(picture))

    def get_extra_state(self) -> Any:
        return {"value": self.extra}

    def set_extra_state(self, state: Any) -> None:
        self.extra = state["value"]


class Keeping(labkit.Callback):
    def __init__(self, value: Any) -> None:
        self.value, self.back = value, None

    def on_report(self, run: Any) -> None:
        pass

    def state_dict(self) -> dict[str, Any]:
        return {"value": self.value}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.back = (state["value"],)


def keeping_step(value: Any, back: list[Any]) -> type:
    class KeepingStep(labkit.Step):
        def state_dict(self) -> dict[str, Any]:
            return {**super().state_dict(), "mine": value}

        def load_state_dict(self, state: dict[str, Any]) -> None:
            back.append(state["mine"])
            super().load_state_dict({key: one for key, one in state.items() if key != "mine"})

        def update(self, player: str) -> None:
            super().update(player)

    return KeepingStep


def with_decay(value: Any) -> type:
    class WithDecay(labkit.Step):
        def optimizer(self, weights: Any, lr: float, betas: Any) -> torch.optim.Optimizer:
            return torch.optim.AdamW(weights, lr=lr, betas=betas, weight_decay=value)

    return WithDecay


def with_momentum(value: Any) -> type:
    class WithMomentum(labkit.Step):
        def optimizer(self, weights: Any, lr: float, betas: Any) -> torch.optim.Optimizer:
            return torch.optim.SGD(weights, lr=lr, momentum=value)

    return WithMomentum


def fruit(**numbers: Any) -> Any:
    return labkit.fruit(**{"n": 4, "size": 32, **numbers})


@functools.cache
def usual() -> Any:
    return fruit()


def photos(**numbers: Any) -> Any:
    for domain in ("trainA", "trainB"):
        if not Path("photos", domain).exists():
            Path("photos", domain).mkdir(parents=True)
            for number in range(3):
                pixels = np.random.default_rng(number).integers(0, 255, (40, 40, 3), dtype=np.uint8)
                Image.fromarray(pixels).save(f"photos/{domain}/{number}.png")
    return labkit.folders("photos", **{"size": 32, "load_size": 36, **numbers})


GREY = {"channels_a": 1, "channels_b": 1}
# Where a value enters: its kinds, and the arguments with a value that `k` converts.
PLACES: dict[str, tuple[Mapping[str, Convert], Callable[[Convert], dict[str, Any]]]] = {
    "schedule's return": (FLOATS | WHOLE, lambda k: {"schedule": lambda done: k(0.5 if done % 2 else 1.0)}),
    "lr": (FLOATS, lambda k: {"lr": k(0.002)}),
    "lr by player": (RATES, lambda k: {"lr": k({"generators": 0.002, "discriminators": 0.001})}),
    "betas": (PAIRS, lambda k: {"betas": k((0.5, 0.75))}),
    "ngf": (INTS, lambda k: {"ngf": k(4)}),
    "ndf": (FEW_INTS, lambda k: {"ndf": k(4)}),
    "n_layers": (FEW_INTS | WHOLE, lambda k: {"n_layers": k(1)}),
    "channels_a": (FEW_INTS, lambda k: {"channels_a": k(3)}),
    "lambda_a": (FLOATS | WHOLE, lambda k: {"lambda_a": k(1.0)}),
    "lambda_b": (FEW, lambda k: {"lambda_b": k(1.0)}),
    "lambda_identity": (FLOATS | WHOLE, lambda k: {"lambda_identity": k(0.5)}),
    "pool_size": (INTS, lambda k: {"pool_size": k(3)}),
    "gan_mode": (TEXTS, lambda k: {"gan_mode": k("vanilla")}),
    "generator's name": (TEXTS, lambda k: {"generator": k("resnet_3blocks")}),
    "speed-up's name": (TEXTS, lambda k: {"classes": [k("batched")]}),
    "accumulate": (FEW_INTS, lambda k: {"accumulate": k(2), "batch_size": 2}),
    "seed": (INTS, lambda k: {"seed": k(7)}),
    "batch_size": (INTS, lambda k: {"batch_size": k(2)}),
    "steps": (INTS, lambda k: {"steps": k}),
    "ema": (FLOATS, lambda k: {"ema": k(0.5)}),
    "report_every": (FEW_INTS, lambda k: {"report_every": k(1)}),
    "sample_every": (FEW_INTS, lambda k: {"sample_every": k(1)}),
    "save_minutes": (
        FEW | {"timedelta": lambda x: datetime.timedelta(minutes=x), "0": lambda x: 0},
        lambda k: {"save_minutes": k(0.5)},
    ),
    "workers": ({"np.int64": np.int64, "0-d tensor": torch.tensor, "np.bool_": np.bool_}, lambda k: {"workers": k(0)}),
    "checkpoint": (FILES, lambda k: {"checkpoint": k}),
    "fruit's n": (INTS, lambda k: {"data": lambda: fruit(n=k(4))}),
    "fruit's size": (FEW_INTS, lambda k: {"data": lambda: fruit(size=k(32))}),
    "fruit's seed": (FEW_INTS, lambda k: {"data": lambda: fruit(seed=k(3))}),
    "folders' size": (INTS, lambda k: {"data": lambda: photos(size=k(32))}),
    "folders' load_size": (FEW_INTS, lambda k: {"data": lambda: photos(load_size=k(40))}),
    "folders' channels": (SIZES, lambda k: {"data": lambda: photos(channels=k((1, 1))), **GREY}),
    "folders' flip": ({"np.bool_": np.bool_, "int": int}, lambda k: {"data": lambda: photos(flip=k(False))}),
    "folders' path": (FILES, lambda k: {"data": lambda: photos() and labkit.folders(k("photos"), 32)}),
    "linear_schedule": (FEW_INTS, lambda k: {"schedule": labkit.linear_schedule(k(2), k(4))}),
    "KeepEvery": (FEW_INTS, lambda k: {"callbacks": lambda: [labkit.KeepEvery(k(1))]}),
    "own AdamW's decay": (FLOATS, lambda k: {"classes": [with_decay(k(0.25))]}),
    "own SGD's momentum": (FEW, lambda k: {"classes": [with_momentum(k(0.5))]}),
    "own network's buffer": (
        {str(kind): functools.partial(typed, kind) for kind in TYPES},
        lambda k: {"buffer": k(1.0)},
    ),
}
OWN = {"generator", "discriminator", "ngf", "ndf", "n_layers", "channels_a", "channels_b", "lambda_a", "lambda_b"}
MODEL = OWN | {"lambda_identity", "pool_size", "gan_mode"}
STEP = {"lr", "betas", "accumulate"}


def network(settings: dict[str, Any]) -> dict[str, Any]:
    """The generator of a case's own, if it has one."""
    own = {"extra", "buffer"} & settings.keys()
    return {"generator": Net(**{key: settings[key] for key in own})} if own else {}


def train(folder: str, steps: int, settings: dict[str, Any], changed: list[bool]) -> Any:
    """The run. Afterwards `changed` holds whether any weight differs from those at first."""
    rest = {"generator": "resnet_3blocks", "discriminator": "n_layers", "n_layers": 1, "ngf": 4, "ndf": 4, **settings}
    torch.manual_seed(0)
    rest |= network(settings)
    rest.pop("extra", None), rest.pop("buffer", None)
    changed[:] = [False]
    model = labkit.CycleGAN(**{key: rest.pop(key) for key in MODEL & rest.keys()})
    before = gate.weights(model)
    try:
        step = labkit.make_step(model, *rest.pop("classes", ()), **{key: rest.pop(key) for key in STEP & rest.keys()})
        data, callbacks = rest.pop("data", usual)(), rest.pop("callbacks", list)()
        convert, place = rest.pop("steps", int), rest.pop("checkpoint", str)
        run = labkit.fit(step, data, convert(steps), checkpoint=place(folder), callbacks=callbacks, **rest)
        run.my_callbacks = callbacks
        return run
    finally:
        changed[:] = [not gate.equal(before, gate.weights(model))]


def plain(k: Convert) -> Convert:
    """The converter to what a user would have written in plain Python."""

    def convert(x: Any) -> Any:
        if isinstance(x, float | int | str):
            value = k(x)
            try:
                return type(x)(value.value if isinstance(value, enum.Enum) else value)
            except (TypeError, ValueError):
                return x
        if isinstance(x, dict):
            return {key: plain(lambda _, key=key: dict(k(x))[key])(x[key]) for key in x}
        return type(x)(map(type(x[0]), k(x)))

    return convert


def same(first: Any, second: Any) -> bool:
    """Whether two values are equal: NaN equals itself, a list no tuple; an array may have become a tensor."""
    if isinstance(first, torch.Tensor | np.ndarray) or isinstance(second, torch.Tensor | np.ndarray):
        one, other = (x.detach().to_dense() if isinstance(x, torch.Tensor) else x for x in (first, second))
        if getattr(one, "dtype", None) == torch.bfloat16:
            return torch.equal(one, other)
        return np.array_equal(np.asarray(one), np.asarray(other))
    if isinstance(first, Mapping) and isinstance(second, Mapping):
        return first.keys() == second.keys() and all(same(first[key], second[key]) for key in first)
    if isinstance(first, list | tuple) and isinstance(second, list | tuple):
        alike = isinstance(first, list) == isinstance(second, list) and len(first) == len(second)
        return alike and all(map(same, first, second))
    if isinstance(first, float) and first != first:
        return second != second
    return bool(first == second)


def examine(settings: dict[str, Any], as_plain: dict[str, Any] | None, read: Callable[[Any], Any], value: Any) -> Any:
    """The verdict. `read` takes the resumed run and returns a tuple of what it holds of `value`."""
    changed: list[bool] = []
    try:
        train("run", 2, settings, changed)
    except Exception as error:
        if any(changed):
            return "LOST", f"in the first call, after a step: {gate.sentence(error)}"
        return "refused" if isinstance(error, labkit.LabkitError) else "REFUSED, RAW", gate.sentence(error)
    if not any(changed):
        return "LOST", "two steps changed no weight"
    try:
        run = train("run", 4, settings, changed)
    except Exception as error:
        return "LOST", f"resuming: {gate.sentence(error)}"
    try:
        loaded = labkit.load_model("run", **network(settings))
    except Exception as error:
        return "LOST", f"load_model: {gate.sentence(error)}"
    if as_plain is not None:
        other = train("plain", 4, as_plain, changed)
        read_back = gate.weights(labkit.load_model("plain", **network(as_plain)))
        if not gate.equal(gate.weights(run.model), gate.weights(other.model)):
            own = train("own", 4, settings, changed)
            if gate.equal(gate.weights(run.model), gate.weights(own.model)):
                return "OTHER", "resumes, but its weights are not those of the plain value"
            return "LOST", "the resumed run differs from an unbroken one"
        if not gate.equal(gate.weights(loaded), read_back):
            return "OTHER", "load_model gives other weights than with the plain value"
        for key in MODEL & settings.keys():
            kept = loaded.settings[key] if isinstance(loaded.settings, Mapping) else getattr(loaded.settings, key)
            if kept != as_plain[key]:
                return "LOST", f"the setting {key} is read back as {kept!r}"
    back = read(run)
    if not back or not same(value, back[0]):
        return "LOST", f"{value!r} is read back as {back!r}"
    return "right", ""


def number(k: Convert, arrange: Callable[[Convert], dict[str, Any]]) -> Any:
    try:
        settings = arrange(k)  # linear_schedule and others may refuse it themselves
    except Exception as error:
        return "refused" if isinstance(error, labkit.LabkitError) else "REFUSED, RAW", gate.sentence(error)
    as_plain = settings if "buffer" in settings else arrange(plain(k))
    if "checkpoint" in as_plain:
        del as_plain["checkpoint"]
    return examine(settings, as_plain, lambda run: (None,), None)


def in_callback(make: Callable[[], Any]) -> Any:
    value = make()
    return examine({"callbacks": lambda: [Keeping(value)]}, {}, lambda run: run.my_callbacks[0].back, value)


def in_network(make: Callable[[], Any]) -> Any:
    value = make()
    return examine({"extra": value}, {"extra": 1}, lambda run: (run.model.G_A.extra,), value)


def in_step(make: Callable[[], Any]) -> Any:
    value, back = make(), []
    return examine({"classes": [keeping_step(value, back)]}, {}, lambda run: tuple(back), value)


CASES = {
    f"{place}: {kind}": functools.partial(number, k, arrange)
    for place, (kinds, arrange) in PLACES.items()
    for kind, k in kinds.items()
}
for place, case in (
    ("callback's state", in_callback),
    ("network's extra state", in_network),
    ("step's state", in_step),
):
    CASES |= {f"{place}: {kind}": functools.partial(case, make) for kind, make in STATES.items()}

if __name__ == "__main__":
    usual()  # before the forks
    gate.run(CASES, __doc__, 60)
