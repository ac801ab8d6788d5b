"""The kernels of "nhwc" are PyTorch's layers. Triton's interpreter runs them here, but shows no races inside one."""

import math
import os
import subprocess
import sys

import nhwc_formulas as formulas
import pytest
import torch

from labkit.variants import nhwc_ends, nhwc_norm

if sys.platform != "linux":
    pytest.skip("Triton exists for Linux only", allow_module_level=True)
needs_interpreter = pytest.mark.skipif(torch.cuda.is_available(), reason="Triton was imported for the GPU")


@pytest.fixture(autouse=True)
def interpreted(monkeypatch):
    monkeypatch.setenv("TRITON_INTERPRET", "1")


def noise(*shape, seed=0, mean=0.0):
    return torch.randn(shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed)) + mean


@pytest.fixture
def walled(monkeypatch):
    """A function that puts a tensor between walls of NaN; so does each operator with its results. All are checked."""
    made = []

    def between(x):
        memory = x.new_full((x.numel() + 128,), math.nan)
        made.append((memory, x.numel()))
        return memory[64:-64].view(x.shape).copy_(x)

    new_empty = torch.Tensor.new_empty

    def empty(like, *shape, **options):
        one = new_empty(like, *shape, **options)
        return one if "device" in options else between(one.fill_(math.nan))  # the interpreter names a device

    monkeypatch.setattr(torch.Tensor, "new_empty", empty)
    monkeypatch.setattr(torch, "empty_like", lambda x: empty(x, x.shape))
    yield between
    for memory, n in made:
        assert memory[:64].isnan().all() and memory[-64:].isnan().all(), "written outside"
        assert not memory[64 : 64 + n].isnan().any(), "read outside, or not written"


def assert_near(mine, right, most=1e-12):
    for own, wanted in zip(mine, right, strict=True):
        assert own.shape == wanted.shape and (own - wanted).abs().max() <= most * max(1, wanted.abs().max())


# ---- the kernels


NORMS = [
    ((2, 7, 9, 5), 1, 0.0, "inner"),
    ((1, 8, 11, 70), 3, 0.2, ""),
    ((2, 9, 16, 64), 1, 1.0, "skip, inner"),
    ((3, 6, 5, 3), 0, 0.0, ""),
    ((1, 2, 2, 2), 1, 0.0, "inner"),
    ((1, 17, 19, 6), 3, 0.0, "large tiles"),
    ((1, 17, 19, 6), 3, 0.0, "inner"),
]


@needs_interpreter
@pytest.mark.parametrize(("shape", "pad", "slope", "more"), NORMS, ids=str)
def test_norm_activation_skip_and_padding_are_pytorch_s(walled, monkeypatch, shape, pad, slope, more):
    """Sizes that are multiples of a tile and such that are not; what a skip is part of has strides of its own."""
    if "large" in more:
        monkeypatch.setattr(nhwc_norm, "MOST_PARTS", 8)
    n, height, width, channels = shape
    x, skip, inner = walled(noise(*shape, mean=3.0)), None, None
    assert nhwc_norm.parts_of_sum(x)[1] == (4 if "large" in more else 1)
    if "skip" in more:
        skip = walled(noise(n, height + 2, width + 2, channels, seed=1))[:, 1:-1, 1:-1]
    if "inner" in more:
        inner = walled(noise(*shape, seed=2))
    dy = walled(noise(n, height + 2 * pad, width + 2 * pad, channels, seed=3))
    y, statistics = nhwc_norm.nhwc_norm(x, skip, 1e-5, slope, pad)
    assert_near((y, statistics), formulas.norm(x, skip, 1e-5, slope, pad))
    given = x, statistics, dy, inner, slope, pad
    assert_near(nhwc_norm.nhwc_norm_backward(*given), formulas.norm_backward(*given))


COLUMNS = [(3, 7, 1, 3, True), (1, 7, 1, 3, True), (3, 4, 2, 1, False), (4, 4, 2, 1, False)]


@needs_interpreter
@pytest.mark.parametrize(("channels", "columns", "stride", "pad", "reflect"), COLUMNS, ids=str)
def test_columns_as_channels_and_channels_as_columns_are_formulas(walled, channels, columns, stride, pad, reflect):
    x = walled(noise(2, channels, 9, 13))
    how = columns, stride, pad, reflect
    y = nhwc_ends.nhwc_pack(x, torch.float64, *how)
    assert_near([y], [formulas.pack(x, torch.float64, *how)])
    dy = walled(noise(*y.shape, seed=1))
    given = dy, list(x.shape), torch.float64, *how
    assert_near([nhwc_ends.nhwc_unpack(*given)], [formulas.unpack(*given)])
    bias, how = walled(noise(channels, seed=2)), (columns, 0 if reflect else pad, reflect)  # tanh where it reflects
    out = nhwc_ends.nhwc_add(dy, bias, *how)
    assert_near([out], [formulas.add(dy, bias, *how)])
    given = walled(noise(*out.shape, seed=3)), out, dy.shape[3], torch.float64, *how
    assert_near([nhwc_ends.nhwc_spread(*given)], [formulas.spread(*given)])


@needs_interpreter
@pytest.mark.parametrize(("mean", "corner", "most"), [(1000.0, 0.0, 1e-3), (0.0, 100.0, 1e-6), (0.0, 1e4, 1e-6)])
def test_neither_a_large_mean_nor_a_corner_cancels(mean, corner, most):
    x = noise(1, 37, 41, 2, mean=mean).float()
    x[0, 0, 0] += corner
    y, _ = nhwc_norm.nhwc_norm(x, None, 1e-5, 1.0, 0)
    assert (y - formulas.norm(x.double(), None, 1e-5, 1.0, 0)[0])[0, 1:].abs().max() < most


@needs_interpreter
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
def test_sixteen_bits_are_added_up_in_float32(dtype):
    x, dy = noise(1, 37, 41, 2, mean=100.0).to(dtype), noise(1, 39, 43, 2, seed=1).to(dtype)  # beyond float16's range
    y, statistics = nhwc_norm.nhwc_norm(x, None, 1e-5, 0.2, 1)
    gradients = nhwc_norm.nhwc_norm_backward(x, statistics, dy, None, 0.2, 1)
    assert statistics.dtype == torch.float32 and {one.dtype for one in (y, *gradients)} == {dtype}
    right = formulas.norm(x.double(), None, 1e-5, 0.2, 1)
    assert_near([y.double()], right[:1], 1e-2)
    right = formulas.norm_backward(x.double(), right[1], dy.double(), None, 0.2, 1)
    assert_near([one.double() for one in gradients], right, 2e-2)


@needs_interpreter
def test_a_second_derivative_is_refused():
    x = noise(1, 2, 4, 4).requires_grad_()
    (gradient,) = torch.autograd.grad(nhwc_norm.norm(x)[0].square().sum(), x, create_graph=True)
    with pytest.raises(RuntimeError, match="differentiate twice"):
        gradient.sum().backward()


def test_each_part_has_pixels(monkeypatch):
    """The first part or the last one would else have nothing to read or write."""
    seen = []
    monkeypatch.setattr(nhwc_norm, "run_grid", lambda kernel, grid, x, *given, **flags: seen.append((given[-1], flags)))
    for shape in ((1, 64, 64, 256), (2, 64, 64, 256), (2, 256, 256, 64), (16, 64, 64, 256), (3, 9, 11, 70)):
        x = torch.empty(shape, device="meta")
        for pad in (0, 1, 3):
            written = (shape[1] + 2 * pad) * (shape[2] + 2 * pad)
            nhwc_norm.nhwc_norm(x, None, 1e-5, 0.0, pad)
            for pixels, (each, flags) in zip((shape[1] * shape[2], written), seen[-2:], strict=True):
                assert (flags["PARTS"] - 1) * each < pixels <= flags["PARTS"] * each


@pytest.mark.slow
def test_the_kernels_compile_for_gpus():
    """In a process without the interpreter, each kernel as a small step launches it first."""
    program = """
from types import SimpleNamespace
import torch
from triton.backends.compiler import GPUTarget
from triton.runtime.driver import driver
import labkit
from labkit.simulate import step_operators
from labkit.variants import nhwc_ends, nhwc_norm

first = {}

def note(kernel, grid, on, *arguments, **constants):
    types = [one.dtype if isinstance(one, torch.Tensor) else one for one in arguments]
    first.setdefault(kernel, (types, constants))

nhwc_norm.run_grid = nhwc_ends.run_grid = note
model = labkit.CycleGAN("resnet_3blocks", ngf=16, ndf=16)
step_operators(model, "nhwc", "batched", "fused_adam", "bf16", size=128)
assert len(first) == 8
for capability in (80, 90):  # of an A100 and of an H100
    absent = SimpleNamespace(  # all that Triton asks of a driver in order to compile
        get_current_device=lambda: capability,  # it keeps the kernels of each device apart
        get_current_stream=lambda device=None: 0,
        get_current_target=lambda: GPUTarget("cuda", capability, 32),
    )
    driver.set_active(absent)
    for kernel, (types, constants) in first.items():
        made = nhwc_norm.as_triton(kernel).warmup(*types, grid=(1,), **constants)
        print("compiled", f".target sm_{capability}" in made.asm["ptx"], len(made.asm["cubin"]))
"""
    env = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, env=env)
    assert done.returncode == 0 and done.stdout.count("compiled True") == 16, done.stderr
