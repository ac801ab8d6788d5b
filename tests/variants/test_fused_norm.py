"""The kernels of "fused_norm" are PyTorch's instance norm and activation; Triton's interpreter runs them on a CPU."""

import os
import subprocess
import sys
import types

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import labkit
from labkit.simulate import step_operators
from labkit.variants import fused_norm
from labkit.variants.fused_norm import norm_and_activation

if sys.platform != "linux":
    pytest.skip("Triton exists for Linux only", allow_module_level=True)
needs_interpreter = pytest.mark.skipif(torch.cuda.is_available(), reason="Triton was imported for the GPU")


@pytest.fixture(autouse=True)
def interpreted(monkeypatch):
    monkeypatch.setenv("TRITON_INTERPRET", "1")


def noise(*shape, dtype=torch.float64, mean=3.0):
    return (torch.randn(shape, dtype=torch.float64, generator=torch.Generator().manual_seed(0)) + mean).to(dtype)


def right(x, slope):
    return F.leaky_relu(F.instance_norm(x), slope)


@needs_interpreter
@pytest.mark.parametrize(
    ("shape", "slope"),
    [((2, 3, 37, 41), 0.0), ((1, 1, 8, 8), 0.2), ((1, 2, 70, 61), 1.0), ((3, 50, 8, 8), 0.2)],
    ids=["odd", "one", "blocks", "programs"],
)
def test_the_kernels_are_pytorch_s_operators(shape, slope):
    x, dy = noise(*shape).requires_grad_(), noise(*shape, mean=0.0).roll(1)
    results = [function(x, slope=slope) for function in (norm_and_activation, right)]
    gradients = [torch.autograd.grad(result, x, dy)[0] for result in results]
    assert (results[0] - results[1]).abs().max() <= 1e-12
    assert (gradients[0] - gradients[1]).abs().max() <= 1e-12


@needs_interpreter
def test_a_plane_of_one_pixel_is_its_own_mean():
    x = noise(2, 3, 1, 1).requires_grad_()
    result = norm_and_activation(x, slope=1.0)
    assert not result.any() and not torch.autograd.grad(result.sum(), x)[0].any()


@needs_interpreter
def test_a_large_mean_does_not_cancel():
    x = noise(1, 2, 37, 41, dtype=torch.float32, mean=1000.0)
    assert (norm_and_activation(x, slope=1.0) - F.instance_norm(x.double())).abs().max() < 1e-3


@needs_interpreter
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
def test_sixteen_bits_are_summed_up_in_float32(dtype):
    x = noise(1, 2, 37, 41, dtype=dtype, mean=100.0).requires_grad_()  # the sum is above the largest float16
    dy = noise(1, 2, 37, 41, dtype=dtype, mean=0.0)
    result, wanted = norm_and_activation(x), right(x.float(), 0.0)
    assert result.dtype == dtype
    assert torch.allclose(result.float(), wanted, rtol=1e-2, atol=1e-3)
    (gradient,), (right_one,) = torch.autograd.grad(result, x, dy), torch.autograd.grad(wanted, x, dy.float())
    assert torch.allclose(gradient.float(), right_one.float(), rtol=2e-2, atol=2e-2)


@needs_interpreter
def test_neither_pictures_nor_gradients_need_to_be_contiguous():
    x = noise(2, 7, 9, 3).transpose(1, 3).requires_grad_()
    dy = noise(2, 3, 9, 7, mean=0.0).contiguous(memory_format=torch.channels_last)
    results = norm_and_activation(x), right(x, 0.0)
    gradients = [torch.autograd.grad(result, x, dy)[0] for result in results]
    assert torch.allclose(*results, rtol=0, atol=1e-12) and torch.allclose(*gradients, rtol=0, atol=1e-12)


@needs_interpreter
def test_a_second_derivative_is_refused():
    x = noise(1, 2, 4, 4).requires_grad_()
    (gradient,) = torch.autograd.grad(norm_and_activation(x).square().sum(), x, create_graph=True)
    with pytest.raises(RuntimeError, match="differentiate twice"):
        gradient.sum().backward()


@pytest.mark.slow
def test_the_kernels_compile_for_a_gpu():
    program = """
import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource
from labkit.variants.fused_norm import as_triton, fused_norm_backward_kernel, fused_norm_kernel

constants = {"SLOPE": 0.0, "ROWS": 2, "BLOCK": 1024}
for kernel, tensors, more in (
    (fused_norm_kernel, ("x", "y"), {"EPS": 1e-5}), (fused_norm_backward_kernel, ("x", "dy", "dx"), {})
):
    types = dict.fromkeys(tensors, "*bf16") | {"statistics": "*fp32", "planes": "i32", "n": "i32"}
    types |= dict.fromkeys(constants | more, "constexpr")
    triton.compile(ASTSource(as_triton(kernel), types, constants | more), target=GPUTarget("cuda", 80, 32))
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, env=without_interpreter())
    assert done.returncode == 0, done.stderr


def without_interpreter():
    return {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}


def test_every_norm_is_fused_and_what_follows_it_where_that_is_its_alone(tiny):
    shared = nn.ReLU()
    network = nn.Sequential(
        nn.Sequential(nn.Conv2d(3, 4, 3, padding=1), nn.InstanceNorm2d(4), shared),
        nn.Sequential(nn.Conv2d(4, 3, 3, padding=1), shared, nn.InstanceNorm2d(3, affine=True), nn.Tanh()),
    )
    step = labkit.make_step(tiny(generator=network), "fused_norm")
    slopes = {
        name: getattr(step.forwards.get(layer), "keywords", {}).get("slope")
        for name, layer in step.model.named_modules()
    }
    assert slopes["G_A.0.1"] == 1.0 and slopes["G_A.1.2"] is None and step.model.G_A[0][2] not in step.forwards
    assert slopes["D_A.model.3"] == 0.2 and step.model.D_A.model[4] in step.forwards


def test_the_model_is_left_as_found_even_after_an_error(tiny, batch):
    class Breaks:
        def backward(self, loss, player):
            assert any("forward" in vars(layer) for layer in self.model.modules())
            raise ZeroDivisionError

    step = labkit.make_step(
        tiny(generator=nn.Sequential(nn.Conv2d(3, 3, 1), nn.InstanceNorm2d(3))), Breaks, "fused_norm"
    )
    with pytest.raises(ZeroDivisionError):
        step(*batch())
    assert not any("forward" in vars(layer) for layer in step.model.modules())


@pytest.mark.slow
def test_its_launches_and_bytes_are_counted(tiny):
    plain, fused = (step_operators(tiny(), *names, size=32) for names in ((), ("out_of_place",)))
    found = step_operators(tiny(), "fused_norm", size=32)
    names = [operator.name for operator in found]
    norms = sum(operator.name == "aten::native_batch_norm" for operator in plain)
    assert names.count("labkit::fused_norm") == norms and "aten::native_batch_norm" not in names
    assert sum(operator.bytes_moved for operator in found) < sum(operator.bytes_moved for operator in fused)


def test_without_triton_or_without_a_gpu_it_says_so(tiny, monkeypatch):
    monkeypatch.delenv("TRITON_INTERPRET")
    if not torch.cuda.is_available():
        with pytest.warns(UserWarning, match="fused_norm: Triton's kernels need a GPU, so it changes nothing"):
            assert not labkit.make_step(tiny(), "fused_norm").forwards
    on_gpu = tiny()
    weight = types.SimpleNamespace(is_cuda=True, device=torch.device("cuda"))
    monkeypatch.setattr(on_gpu, "parameters", lambda: iter([weight]))
    monkeypatch.setattr(fused_norm.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(labkit.LabkitError, match="'fused_norm': its kernels need Triton: pip install triton"):
        labkit.make_step(on_gpu, "fused_norm")
