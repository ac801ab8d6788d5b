"""What many tests need: small networks, small pictures, one thread."""

import contextlib
import functools
import gc
import importlib
import sys
import types

import pytest
import torch
from tiny import TINY

import labkit
from labkit import cli
from labkit.variants.compile import Compile

with pytest.MonkeyPatch.context() as patch, contextlib.suppress(ImportError):
    if not torch.cuda.is_available():
        # So imported, its interpreter can run kernels of tests that set this, too.
        patch.setenv("TRITON_INTERPRET", "1")
    importlib.import_module("triton.language")
torch.set_num_threads(1)  # the machine's other cores belong to other tests

# Files whose tests take a minute or more: on several cores they come first, right after the notebooks, so that no core
# is left with one of them when all others are done.
LONG = "assignments compare compare_catches data_parallel export grading speedrun speedups sweep torchrun visit".split()


def pytest_collection_modifyitems(items):
    items.sort(key=lambda item: (item.path.suffix != ".ipynb", item.path.stem.removeprefix("test_") not in LONG))


def pytest_collection_finish():
    gc.freeze()  # a million objects of imported modules stay to the end: no collection has to look at them again


def pytest_unconfigure():
    gc.unfreeze()  # or nanobind reports every object that was not collected as a leak


@pytest.fixture(scope="session", autouse=True)
def computes_in_16_bits():
    """What 16-bit speed-ups compute is the same on a processor that only emulates 16 bits, where they are refused."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("labkit.devices.emulates", lambda dtype: False)
        yield


@pytest.fixture(scope="session")
def tiny():
    """A function that makes a tiny CycleGAN, always with the same weights; keywords override its settings."""

    def make(**settings):
        torch.manual_seed(0)
        return labkit.CycleGAN(**{**TINY, **settings})

    return make


@pytest.fixture
def quick_compiler(monkeypatch):
    """Traces what torch.compile would compile, and runs that as it is: inductor takes minutes."""
    monkeypatch.setattr(Compile, "backend", "aot_eager")


@pytest.fixture
def elsewhere(monkeypatch):
    """A function that lets a model say that it is on another device, which is not here."""

    def say(model, device):
        weight = types.SimpleNamespace(is_cuda=device == "cuda", is_cpu=False, device=torch.device(device))
        monkeypatch.setattr(model, "parameters", lambda: iter([weight]))
        return model

    return say


@pytest.fixture(scope="session")
def fruit():
    """Twelve small pictures of either fruit."""
    return labkit.fruit(n=12, size=32, seed=0)


@pytest.fixture
def train(tiny, fruit):
    """A function that trains a tiny CycleGAN on fruit up to a step and returns the run; `own` are parts of its step."""

    def run(steps, folder=None, *callbacks, model=None, own=(), **options):
        step = labkit.make_step(model or tiny(), *own, lr=1e-3)
        return labkit.fit(step, fruit, steps, checkpoint=folder, callbacks=callbacks, **options)

    return run


@pytest.fixture(scope="session")
def batch():
    """A function that makes a batch of noise in [-1, 1], another one for every seed."""

    def make(n=1, size=32, seed=0, dtype=torch.float32):
        random = torch.Generator().manual_seed(seed)
        return tuple(torch.rand(n, 3, size, size, generator=random, dtype=dtype) * 2 - 1 for _ in range(2))

    return make


@pytest.fixture
def call(monkeypatch, capsys):
    """A function that runs ``labkit ARGUMENTS`` and returns exit status, output and error output.

    A few pictures of fruit stand for the thousand that are painted otherwise.
    """
    monkeypatch.setattr(labkit, "fruit", functools.partial(labkit.fruit, n=8))

    def run(*arguments):
        monkeypatch.setattr(sys, "argv", ["labkit", *map(str, arguments)])
        with pytest.raises(SystemExit) as ended:
            cli.main()
        return ended.value.code or 0, *capsys.readouterr()

    return run
