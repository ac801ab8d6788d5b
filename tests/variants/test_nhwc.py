"""The kernels of "nhwc" are PyTorch's layers. Triton's interpreter runs them here, but shows no races inside one."""

import math
import os
import subprocess
import sys
import types
import weakref

import nhwc_formulas as formulas
import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

import labkit
from labcourse.races import RaceRecorder, VectorClocks
from labkit.measure.same import Update
from labkit.variants import nhwc, nhwc_ends, nhwc_norm

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


@needs_interpreter
@pytest.mark.parametrize(
    ("shape", "pad", "slope", "more"),
    [
        ((2, 7, 9, 5), 1, 0.0, "inner"),
        ((1, 8, 11, 70), 3, 0.2, ""),
        ((2, 9, 16, 64), 1, 1.0, "skip, inner"),
        ((3, 6, 5, 3), 0, 0.0, ""),
        ((1, 2, 2, 2), 1, 0.0, "inner"),
        ((1, 17, 19, 6), 3, 0.0, "large tiles"),
        ((1, 17, 19, 6), 3, 0.0, "inner"),
    ],
    ids=str,
)
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


@needs_interpreter
@pytest.mark.parametrize(
    ("channels", "columns", "stride", "pad", "reflect"),
    [(3, 7, 1, 3, True), (1, 7, 1, 3, True), (3, 4, 2, 1, False), (4, 4, 2, 1, False)],
    ids=str,
)
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
def test_a_large_mean_does_not_cancel():
    x = noise(1, 37, 41, 2, mean=1000.0).float()
    y, _ = nhwc_norm.nhwc_norm(x, None, 1e-5, 1.0, 0)
    assert (y - formulas.norm(x.double(), None, 1e-5, 1.0, 0)[0]).abs().max() < 1e-3


@needs_interpreter
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
def test_sixteen_bits_are_added_up_in_float32(dtype):
    x, dy = noise(1, 37, 41, 2, mean=100.0).to(dtype), noise(1, 39, 43, 2, seed=1).to(dtype)  # beyond float16's range
    y, statistics = nhwc_norm.nhwc_norm(x, None, 1e-5, 0.2, 1)
    gradients = nhwc_norm.nhwc_norm_backward(x, statistics, dy, None, 0.2, 1)
    assert statistics.dtype == torch.float32 and {one.dtype for one in (y, *gradients)} == {dtype}
    right = formulas.norm(x.double(), None, 1e-5, 0.2, 1)
    assert_near([y.double()], right[:1], 1e-2)
    assert_near(
        [one.double() for one in gradients],
        formulas.norm_backward(x.double(), right[1], dy.double(), None, 0.2, 1),
        2e-2,
    )


@needs_interpreter
def test_a_second_derivative_is_refused():
    x = noise(1, 2, 4, 4).requires_grad_()
    (gradient,) = torch.autograd.grad(nhwc_norm.norm(x)[0].square().sum(), x, create_graph=True)
    with pytest.raises(RuntimeError, match="differentiate twice"):
        gradient.sum().backward()


def test_each_part_has_pixels(monkeypatch):
    """The first part or the last one would else have nothing to read or write."""
    seen = []
    monkeypatch.setattr(nhwc_norm, "run", lambda kernel, grid, x, *given, **flags: seen.append((given[-1], flags)))
    for shape in ((1, 64, 64, 256), (2, 64, 64, 256), (2, 256, 256, 64), (16, 64, 64, 256), (3, 9, 11, 70)):
        x = torch.empty(shape, device="meta")
        for pad in (0, 1, 3):
            written = (shape[1] + 2 * pad) * (shape[2] + 2 * pad)
            nhwc_norm.nhwc_norm(x, None, 1e-5, 0.0, pad)
            for pixels, (each, flags) in zip((shape[1] * shape[2], written), seen[-2:], strict=True):
                assert (flags["PARTS"] - 1) * each < pixels <= flags["PARTS"] * each


@pytest.mark.slow
@pytest.mark.parametrize("capability", [80, 90])
def test_the_kernels_compile_for_a_gpu(capability):
    program = """
import sys
import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource
from labkit.variants import nhwc_ends as e, nhwc_norm as n

part = {"PARTS": 8, "TILE": 64, "CHANNELS": 64}
types = dict.fromkeys(("x", "y", "dy", "dx", "g", "d_inner", "skip"), "*bf16")
types |= dict.fromkeys(("sums", "statistics", "bias", "out", "d_out"), "*fp32")
thin = {"C": 3, "WIDE": 24, "TILE": 64, "COLUMNS": 7, "PAD": 3}
for kernel, constants in (
    (n.sums_kernel, part | {"ROWS": 16}),
    (n.norm_kernel, part | {"SUM_PARTS": 8, "EPS": 1e-5, "SLOPE": 1.0, "PAD": 1, "HAS_SKIP": True}),
    (n.gradient_sums_kernel, part | {"SLOPE": 0.0, "PAD": 3, "HAS_INNER": True, "ROWS": 16}),
    (n.gradient_sums_kernel, part | {"TILE": 256, "SLOPE": 0.0, "PAD": 1, "HAS_INNER": True, "ROWS": 64}),
    (n.norm_backward_kernel, part | {"SUM_PARTS": 8}),
    (e.pack_kernel, thin | {"STRIDE": 1, "REFLECT": True, "LANES": 32}),
    (e.unpack_kernel, thin | {"STRIDE": 1, "REFLECT": True, "LANES": 4}),
    (e.add_kernel, thin | {"TANH": True, "LANES": 4}),
    (e.spread_kernel, thin | {"TANH": True, "LANES": 32}),
):
    compiled = n.as_triton(kernel)
    signature = {name: "constexpr" if name in constants else types.get(name, "i32") for name in compiled.arg_names}
    options = {"num_warps": constants["TILE"] // 16, "maxnreg": 128}
    target = GPUTarget("cuda", int(sys.argv[1]), 32)
    triton.compile(ASTSource(compiled, signature, constants), target=target, options=options)
"""
    env = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    command = [sys.executable, "-c", program, str(capability)]
    done = subprocess.run(command, capture_output=True, text=True, env=env)
    assert done.returncode == 0, done.stderr


# ---- whole steps: nhwc_formulas.py stands for the kernels, except in one test


@pytest.mark.parametrize(
    ("settings", "size"),
    [
        (dict(generator="resnet_6blocks", ngf=3, n_layers=1), (20, 28)),
        (dict(ngf=6, n_layers=4, channels_a=1, channels_b=4, lambda_identity=0), (52, 48)),
        (dict(n_layers=1), (8, 12)),
    ],
    ids=str,
)
def test_other_networks_and_odd_sizes_are_the_baseline(tiny, monkeypatch, settings, size):
    formulas.instead_of_kernels(monkeypatch)
    model, other = tiny(**settings).double(), tiny(**settings).double()
    batch = [noise(3, channels, *size, seed=channels).clamp(-1, 1) for channels in model.channels]
    mine, right = (Update.of(labkit.make_step(*one), batch) for one in ((model, "nhwc", "batched"), (other,)))
    distance = mine.distance(right)
    assert distance.losses <= 1e-12 and distance.gradients <= 1e-10


@pytest.mark.slow
@needs_interpreter
def test_a_training_step_by_its_kernels_is_the_baseline_s(tiny, batch, monkeypatch):
    monkeypatch.setattr(nhwc_norm, "PIXELS", 512)  # the interpreter takes a while for each program
    monkeypatch.setattr(nhwc_ends, "TILE", 512)
    mine, right = (
        Update.of(labkit.make_step(tiny(ngf=2, ndf=2).double(), *names), batch(size=16, dtype=torch.float64))
        for names in (("nhwc", "batched", "fused_adam"), ())
    )
    distance = mine.distance(right)
    assert distance.losses <= 1e-12 and distance.gradients <= 1e-12


class Operators(TorchDispatchMode):
    """Calls `seen` with the name and the arguments of each operator."""

    def __init__(self, seen):
        self.seen = seen
        super().__init__()

    def __torch_dispatch__(self, operator, types, args=(), kwargs=None):
        self.seen(operator.name(), args)
        return operator(*args, **(kwargs or {}))


@pytest.fixture
def idle(monkeypatch):
    """A function that makes a step of small networks whose kernels do nothing: layouts and operators are real."""
    monkeypatch.setattr(nhwc_norm, "run", lambda *given, **flags: None)
    monkeypatch.setattr(nhwc_ends, "run", lambda *given, **flags: None)
    return lambda *names: labkit.make_step(labkit.CycleGAN("resnet_3blocks", ngf=16, ndf=16, pool_size=2), *names)


def test_no_activation_is_copied(idle, batch):
    """Between the kernels the layout stays: PyTorch converts small weights only."""
    copied = []

    def note(name, arguments):
        if name in ("aten::clone", "aten::copy_") and arguments[0].dim() == 4:
            copied.append(tuple(arguments[0].shape))

    with Operators(note):
        idle("nhwc", "batched")(*batch(2, size=64))
    assert copied and all(min(shape[2:]) <= 7 for shape in copied)


def test_no_weight_s_gradient_is_computed_for_who_does_not_learn(idle, batch, monkeypatch):
    step, players, asked = idle("nhwc", "batched"), [], set()

    def note(name, arguments):
        if name == "aten::convolution_backward" and 4 in arguments[2].shape[2:]:  # a discriminator's
            asked.add((players[-1], arguments[-1][1]))

    backward = step.backward
    monkeypatch.setattr(step, "backward", lambda loss, player: (players.append(player), backward(loss, player)))
    with Operators(note):
        step(*batch(2, size=64))
    assert asked == {("generators", False), ("discriminators", True)}


class BothWays(VectorClocks):
    """Follows streams into the backward pass: an operation is on its forward one's, and waits for its gradients."""

    def __init__(self):
        super().__init__()
        self.switches = [(0, self.main)]

    def switched(self):
        self.switches.append((torch._C._autograd._get_sequence_nr(), self.current))

    @property
    def current(self):
        node = torch._C._current_autograd_node() if torch._C._current_graph_task_id() != -1 else None
        if node is None or node._sequence_nr() >= 2**63:
            return super().current
        return [stream for number, stream in self.switches if number <= node._sequence_nr()][-1]


class Recorder(RaceRecorder):
    """Lets an operation of the backward pass wait for gradients made before, and marks their memory: autograd does."""

    def use(self, tensor, stream, writes):
        (memory,) = self.of(tensor)
        if torch._C._current_graph_task_id() != -1 and getattr(memory, "of_backward", False):
            self.clocks.wait(stream, self.clocks.point(memory.owner))
            memory.marked.add(stream)
        super().use(tensor, stream, writes)

    def made_by(self, *given):
        memory = super().made_by(*given)
        memory.of_backward = torch._C._current_graph_task_id() != -1
        return memory


@pytest.mark.parametrize("planted", [False, True])
def test_two_streams_do_not_race_forward_and_backward(idle, batch, monkeypatch, planted):
    if planted:  # the weights are cast on a stream of their own, for which nobody waits
        right = nhwc.prepared

        def prepared(*given):
            with torch.cuda.stream(torch.cuda.Stream()):
                return right(*given)

        monkeypatch.setattr(nhwc, "prepared", prepared)
    monkeypatch.setattr("labcourse.races.VectorClocks", BothWays)
    step = idle("nhwc", "streams")
    real_a, real_b = batch(size=64)
    recorder = Recorder({"real_a": real_a, "real_b": real_b, **dict(step.model.named_parameters())})
    with recorder.watching({}, real_a.device):
        step.learn("generators", {"real_a": real_a, "real_b": real_b})
        for side in step.side:
            torch.cuda.current_stream().wait_stream(side)  # as autograd does at the end
    assert bool(recorder.races()) == planted


def test_the_cast_weights_live_until_the_backward_pass_has_ended(idle, batch, monkeypatch):
    """Their memory is the main stream's, which would hand it out again while another stream reads it."""
    step, alive = idle("nhwc"), []
    backward = step.backward

    def watched(loss, player):
        refs = [weakref.ref(weight) for weight in step.ready.values()]
        backward(loss, player)
        alive.append(all(ref() is not None for ref in refs) and bool(refs))

    monkeypatch.setattr(step, "backward", watched)
    step(*batch(size=64))
    assert alive == [True, True] and not step.ready


# ---- where it does not go


@pytest.mark.parametrize(
    "settings",
    [
        dict(generator="unet_128"),
        dict(discriminator="pixel"),
        dict(generator="resnet_9blocks_separable"),
        dict(norm="batch"),
        dict(norm="instance_blocks"),
        dict(generator=torch.nn.Sequential(torch.nn.Conv2d(3, 3, 1), torch.nn.InstanceNorm2d(3))),
    ],
    ids=str,
)
def test_networks_that_it_does_not_know_are_refused_by_name(tiny, settings):
    wrong = "D_A" if "discriminator" in settings else "G_A"
    with pytest.raises(labkit.LabkitError, match=f"'nhwc': it knows ResNet .* PatchGANs .*, and {wrong} is neither"):
        labkit.make_step(tiny(**settings), "nhwc")


def test_a_layer_that_somebody_has_put_in_is_seen(tiny):
    model = tiny()
    model.G_B.model[10].conv_block.insert(4, torch.nn.Dropout(0.5))
    with pytest.raises(labkit.LabkitError, match="and G_B is neither"):
        labkit.make_step(model, "nhwc")


def test_without_triton_or_without_a_gpu_it_says_so(tiny, monkeypatch):
    monkeypatch.delenv("TRITON_INTERPRET")
    if not torch.cuda.is_available():
        with pytest.warns(UserWarning, match="nhwc: Triton's kernels need a GPU, so it changes nothing"):
            assert not labkit.make_step(tiny(), "nhwc").forwards
    on_gpu = tiny()
    weight = types.SimpleNamespace(is_cuda=True, is_cpu=False, device=torch.device("cuda"))
    monkeypatch.setattr(on_gpu, "parameters", lambda: iter([weight]))
    monkeypatch.setattr(nhwc.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(labkit.LabkitError, match="'nhwc': its kernels need Triton: pip install triton"):
        labkit.make_step(on_gpu, "nhwc")


def test_the_model_is_left_as_found_even_after_an_error(idle, batch, monkeypatch):
    step = idle("nhwc")
    monkeypatch.setattr(step, "backward", lambda loss, player: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        step(*batch(size=64))
    assert not step.ready and not any("forward" in vars(network) for network in step.model.modules())
