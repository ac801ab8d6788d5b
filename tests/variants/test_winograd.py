"""The kernels of "winograd" are PyTorch's convolution and instance norm, and it acts only where it can."""

import copy
import shutil

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import labkit
from labkit.measure.autotune import candidates
from labkit.variants import cpp, patches, winograd
from labkit.variants.winograd import Transformed, WinogradConvolution, norm_and_activation

pytestmark = pytest.mark.skipif(shutil.which("g++") is None, reason="needs a C++ compiler")


@pytest.fixture
def two_threads():
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(before)


def noise(*shape):
    return torch.randn(*shape, dtype=torch.float64, requires_grad=True)


SHAPES = [(1, 16, 16, 8, 8), (2, 5, 7, 9, 6), (1, 70, 33, 2, 3), (3, 3, 64, 16, 7), (1, 20, 16, 5, 13)]
SHAPES += [(2, 3, 2, 49, 50)]  # more than one part of both sides of the products, in one strip


@pytest.fixture(params=[False, True], ids=["MKL", "own products"])
def own(request, monkeypatch):
    monkeypatch.setattr(cpp, "own_products", lambda: request.param)


def check(ours, right, inputs):
    gradient = torch.randn_like(right)
    torch.testing.assert_close(ours, right, rtol=0, atol=1e-10)
    for mine, other in zip(*(torch.autograd.grad(y, inputs, gradient) for y in (ours, right)), strict=True):
        torch.testing.assert_close(mine, other, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("taps", [3, 4])
@pytest.mark.parametrize("shape", SHAPES)
def test_convolution_norm_and_gradients_are_pytorch_s(two_threads, own, monkeypatch, shape, taps):
    torch.manual_seed(0)
    n, inside, outside, height, width = shape
    monkeypatch.setattr(winograd, "STRIP", 3 if height < 49 else 1000)  # many strips, or one
    height, width = height + taps - 3, width + taps - 3
    x, weight, bias = noise(n, inside, height, width), noise(outside, inside, taps, taps), noise(outside)
    padded = F.pad(x, (1, 1, 1, 1), **({"mode": "reflect"} if taps == 3 else {}))
    convolved = F.conv2d(padded, weight, bias)
    ours = WinogradConvolution.apply(x, weight, bias, Transformed(weight))
    norms = norm_and_activation(ours, 1e-5, 0.2), F.leaky_relu(F.instance_norm(convolved), 0.2)
    check(ours + norms[0], convolved + norms[1], (x, weight, bias))


LAYERS = [
    nn.Conv2d(16, 18, 3, 2, 1),
    nn.Conv2d(17, 16, (4, 3), (1, 2), (1, 0), bias=False),
    nn.ConvTranspose2d(16, 20, 3, 2, 1, 1),
    nn.ConvTranspose2d(18, 16, (4, 2), (2, 1), (1, 0)),
]


@pytest.mark.parametrize("layer", LAYERS, ids=str)
def test_gradients_over_patches_are_pytorch_s(own, monkeypatch, layer):
    monkeypatch.setattr(patches, "AT_ONCE", 3000)  # several products, the last one smaller
    assert patches.suits(layer.double())
    x = noise(2, layer.in_channels, 13, 10).contiguous(memory_format=torch.channels_last)
    check(patches.convolution(layer, x), layer(x), (x, *layer.parameters()))


@pytest.mark.parametrize("norm", labkit.networks.layers.NORMS)
def test_layers_behind_a_convolution_may_work_in_place(norm, batch):
    steps = []
    for names in ((), ("winograd",)):
        torch.manual_seed(0)
        model = labkit.CycleGAN("resnet_3blocks", ngf=16, ndf=16, norm=norm).double()
        steps.append(labkit.make_step(model, *names))
    plain, ours = (step(*batch(dtype=torch.float64)) for step in steps)
    torch.testing.assert_close(ours, plain, rtol=1e-10, atol=0)


SIZES = [(64, 32, "float32", [True, False]), (60, 64, "float32", [False] * 2), (64, 12, "float32", [False] * 2)]
SIZES += [(24, 2, "float64", [True, True])]


@pytest.mark.parametrize("own", [False, True])
@pytest.mark.parametrize("size, ngf, dtype, pays", SIZES)
@pytest.mark.filterwarnings("ignore:winograd")
def test_small_pictures_are_left_to_pytorch_in_float32(monkeypatch, batch, size, ngf, dtype, pays, own):
    monkeypatch.setattr(winograd, "own_products", lambda: own)
    monkeypatch.setattr(winograd, "NUMBERS", 1 << 15)  # with AVX2, too
    run, called = winograd.run_kernel, []
    monkeypatch.setattr(winograd, "run_kernel", lambda name, *rest: (called.append(name), run(name, *rest)))
    model = labkit.CycleGAN("resnet_3blocks", ngf=ngf, ndf=2).to(getattr(torch, dtype))
    step = labkit.make_step(model, "winograd")
    step(*batch(1, size, dtype=getattr(torch, dtype)))
    assert bool(called) == pays[own] and step.own and not step.forwards


def test_large_means_keep_their_digits_in_float32():
    x = torch.rand(1, 20, 64, 64) + 1000
    right = F.instance_norm(x.double())
    torch.testing.assert_close(norm_and_activation(x, 1e-5, 1.0).double(), right, rtol=0, atol=2e-3)


def test_a_second_derivative_is_refused():
    x = noise(1, 2, 4, 4)
    (gradient,) = torch.autograd.grad(norm_and_activation(x, 1e-5, 0.0).square().sum(), x, create_graph=True)
    with pytest.raises(RuntimeError, match="differentiate twice"):
        gradient.sum().backward()


def test_residual_blocks_are_its_own_and_other_convolutions_are_left_alone(tiny):
    step = labkit.make_step(tiny(generator="resnet_3blocks"), "winograd")
    ours = [layer for layer in step.own if isinstance(layer, nn.Conv2d) and layer.kernel_size == (3, 3)]
    assert len(ours) == 2 * 3 * 2 and all(layer.stride == (1, 1) for layer in ours)


@pytest.mark.filterwarnings("ignore:data_parallel")
def test_it_acts_beside_a_speedup_that_does_nothing_here(tiny):
    alone = labkit.make_step(tiny(), "winograd")
    assert len(labkit.make_step(tiny(), "winograd", "data_parallel").own) == len(alone.own) > 0


@pytest.mark.parametrize("generator", ["resnet_9blocks_grouped", "resnet_9blocks_separable", "custom", "unet_128"])
def test_grouped_and_custom_networks_have_nothing_for_it(tiny, batch, generator):
    custom = nn.Sequential(nn.ReflectionPad2d(1), nn.Conv2d(3, 3, 3))
    with pytest.warns(UserWarning, match="winograd: no network has 3x3 convolutions"):
        step = labkit.make_step(tiny(generator=custom if generator == "custom" else generator), "winograd")
    assert not step.own
    step(*batch(2, 128 if generator == "unet_128" else 16))


def test_weights_in_other_types_are_refused(tiny):
    with pytest.raises(labkit.LabkitError, match="'winograd': its kernels take weights in float32 or float64"):
        labkit.make_step(tiny().bfloat16(), "winograd")


def test_a_copy_of_a_step_computes_with_its_own_networks(tiny, batch):
    step = labkit.make_step(tiny().double(), "winograd")
    other, pictures = copy.deepcopy(step), batch(dtype=torch.float64)
    assert set(other.own) <= set(other.model.modules())
    assert step(*pictures) == other(*pictures)
    assert step(*pictures) == other(*pictures), "after an update, too"


def test_without_a_compiler_it_says_so_and_is_not_tried(tiny, monkeypatch):
    monkeypatch.setattr(cpp, "compiler", lambda: None)
    with pytest.warns(UserWarning, match="need Linux and a C\\+\\+ compiler, such as g\\+\\+, so it changes nothing"):
        labkit.make_step(tiny(), "winograd")
    names, said = candidates(tiny)
    assert "winograd" not in names and any(line.startswith("winograd: not tried, its kernels") for line in said)


def test_a_compiler_that_fails_is_quoted_and_nothing_is_kept(tmp_path, monkeypatch):
    cpp.library.cache_clear()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(cpp, "SOURCE", tmp_path / "no.cpp")
    (tmp_path / "no.cpp").write_text("this is no program")
    with pytest.raises(labkit.LabkitError, match="kernels in C\\+\\+ cannot be compiled: .*<stdin>:1"):
        cpp.library()
    assert not list(tmp_path.rglob("*.so*"))


@pytest.mark.parametrize("cache", ["/proc/nobody", "kept"])
def test_without_a_folder_for_caches_it_compiles_each_time(tmp_path, monkeypatch, cache):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / cache))
    assert cpp.compiled('extern "C" int answer() { return 42; }').answer() == 42
    assert len([*tmp_path.rglob("*")]) == (3 if cache == "kept" else 0), "two folders and the file, or nothing"


def test_pytorch_s_own_norm_does_not_keep_channels_last_yet():
    x = torch.rand(1, 8, 4, 4).contiguous(memory_format=torch.channels_last)
    kept = F.instance_norm(x).is_contiguous(memory_format=torch.channels_last)
    assert not kept, "pytorch#194616 is solved: say so in winograd and channels_last, and see what they gain now"


def test_two_by_two_pixels_are_the_convolution_s_for_even_sides_and_odd_ones(tiny, batch):
    steps = [labkit.make_step(tiny().double(), *names) for names in ((), ("subpixel",))]
    assert len(steps[1].forwards) == 2, "each generator's last convolution"
    layer, forward = next(iter(steps[1].forwards.items()))
    for side in (22, 23):
        x = torch.rand(2, layer.in_channels, side, 22, dtype=torch.float64)
        torch.testing.assert_close(forward(x), layer(x), rtol=0, atol=1e-12)
