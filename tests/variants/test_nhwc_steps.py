"""Steps with "nhwc": the baseline's results, no layout converted, no race between streams; and where it does not go."""

import sys
import weakref

import nhwc_formulas as formulas
import pytest
import torch
from operators import Operators

import labkit
from labcourse.races import RaceRecorder, VectorClocks
from labkit.measure.same import Update
from labkit.variants import nhwc, nhwc_ends, nhwc_norm

if sys.platform != "linux":
    pytest.skip("Triton exists for Linux only", allow_module_level=True)


@pytest.fixture(autouse=True)
def interpreted(monkeypatch):
    monkeypatch.setenv("TRITON_INTERPRET", "1")


OTHERS = [
    (dict(generator="resnet_6blocks", ngf=3, n_layers=1), (20, 28)),
    (dict(ngf=6, n_layers=4, channels_a=1, channels_b=4, lambda_identity=0), (52, 48)),
    (dict(n_layers=1), (8, 12)),
]


@pytest.mark.parametrize(("settings", "size"), OTHERS, ids=str)
def test_other_networks_and_odd_sizes_are_the_baseline(tiny, monkeypatch, settings, size):
    formulas.instead_of_kernels(monkeypatch)
    model, other = tiny(**settings).double(), tiny(**settings).double()
    batch = [2 * torch.rand(3, channels, *size, dtype=torch.float64) - 1 for channels in model.channels]
    mine, right = (Update.of(labkit.make_step(*one), batch) for one in ((model, "nhwc", "batched"), (other,)))
    distance = mine.distance(right)
    assert distance.losses <= 1e-12 and distance.gradients <= 1e-10


@pytest.mark.slow
@pytest.mark.skipif(torch.cuda.is_available(), reason="Triton was imported for the GPU")
def test_a_training_step_by_its_kernels_is_the_baseline_s(tiny, batch, monkeypatch):
    monkeypatch.setattr(nhwc_norm, "PIXELS", 512)  # the interpreter takes a while for each program
    monkeypatch.setattr(nhwc_ends, "TILE", 512)
    mine, right = (
        Update.of(labkit.make_step(tiny(ngf=2, ndf=2).double(), *names), batch(size=16, dtype=torch.float64))
        for names in (("nhwc", "batched", "fused_adam"), ())
    )
    distance = mine.distance(right)
    assert distance.losses <= 1e-12 and distance.gradients <= 1e-12


@pytest.fixture
def idle(monkeypatch):
    """A function that makes a step of small networks whose kernels do nothing: layouts and operators are real."""
    monkeypatch.setattr(nhwc_norm, "run_grid", lambda *given, **flags: None)
    monkeypatch.setattr(nhwc_ends, "run_grid", lambda *given, **flags: None)
    return lambda *names: labkit.make_step(labkit.CycleGAN("resnet_3blocks", ngf=16, ndf=16, pool_size=2), *names)


def test_no_activation_is_copied(idle, batch):
    """Between the kernels the layout stays: PyTorch converts small weights only."""
    copied = []

    def note(operator, arguments, result):
        if operator.name() in ("aten::clone", "aten::copy_") and arguments[0].dim() == 4:
            copied.append(tuple(arguments[0].shape))

    with Operators(note):
        idle("nhwc", "batched")(*batch(2, size=64))
    assert copied and all(min(shape[2:]) <= 7 for shape in copied)


def test_no_weight_s_gradient_is_computed_for_who_does_not_learn(idle, batch, monkeypatch):
    step, players, asked = idle("nhwc", "batched"), [], set()

    def note(operator, arguments, result):
        if operator.name() == "aten::convolution_backward" and 4 in arguments[2].shape[2:]:  # a discriminator's
            asked.add((players[-1], arguments[-1][1]))

    backward = step.backward
    monkeypatch.setattr(step, "backward", lambda loss, player: (players.append(player), backward(loss, player)))
    with Operators(note):
        step(*batch(2, size=64))
    assert asked == {("generators", False), ("discriminators", True)}


@pytest.mark.parametrize("frozen", [(), ("G_B",), ("G_A.model.1", "G_B.model.4")], ids=str)
def test_it_computes_the_baseline_s_gradients_and_more_than_half_of_their_numbers_early(idle, batch, frozen):
    counts = []
    for names in ((), ("nhwc",)):
        model, done, ready = idle().model, [], []
        for name in frozen:
            model.get_submodule(name).requires_grad_(False)
        step = labkit.make_step(model, *names)

        def note(operator, arguments, result, done=done):
            if operator.name() == "aten::convolution_backward":
                done.append(arguments[-1][1])

        for weight in step.players["generators"]:
            weight.register_post_accumulate_grad_hook(
                lambda weight, done=done, ready=ready: ready.append((len(done), weight.numel()))
            )
        with Operators(note):
            step.learn("generators", step.inputs(*batch(size=64)))
        counts.append(sum(done))
        early = sum(n for when, n in ready if when < 0.9 * len(done))
        assert frozen or early > sum(n for _, n in ready) / 2
    assert counts[0] == counts[1] > 0


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


REFUSED = [
    dict(generator="unet_128"),
    dict(discriminator="pixel"),
    dict(generator="resnet_9blocks_separable"),
    dict(generator="resnet_9blocks_resize"),
    dict(norm="batch"),
    dict(norm="instance_blocks"),
    dict(generator=torch.nn.Sequential(torch.nn.Conv2d(3, 3, 1), torch.nn.InstanceNorm2d(3))),
]


@pytest.mark.parametrize("settings", REFUSED, ids=str)
def test_networks_that_it_does_not_know_are_refused_by_name(tiny, settings):
    wrong = "D_A" if "discriminator" in settings else "G_A"
    with pytest.raises(labkit.LabkitError, match=f"'nhwc': it knows ResNet .* PatchGANs .*, and {wrong} is neither"):
        labkit.make_step(tiny(**settings), "nhwc")


def test_a_layer_that_somebody_has_put_in_is_seen(tiny):
    model = tiny()
    model.G_B.model[10].conv_block.insert(4, torch.nn.Dropout(0.5))
    with pytest.raises(labkit.LabkitError, match="and G_B is neither: see G_B.model.10.conv_block.4"):
        labkit.make_step(model, "nhwc")


def test_without_triton_or_without_a_gpu_it_says_so(tiny, elsewhere, monkeypatch):
    monkeypatch.delenv("TRITON_INTERPRET")
    if not torch.cuda.is_available():
        with pytest.warns(UserWarning, match="nhwc: Triton's kernels need a GPU, so it changes nothing"):
            assert not labkit.make_step(tiny(), "nhwc").forwards

    missing = [
        ("importlib.util.find_spec", "its kernels need Triton: pip install triton"),
        ("shutil.which", "Triton needs a C compiler, and there is none here: install gcc"),
    ]
    for place, reason in missing:
        with monkeypatch.context() as patch, pytest.raises(labkit.LabkitError, match=f"'nhwc': {reason}"):
            patch.setattr(place, lambda name: None)
            labkit.make_step(elsewhere(tiny(), "cuda"), "nhwc")
    monkeypatch.setattr(torch.version, "hip", "6.4")
    with pytest.raises(labkit.LabkitError, match="'nhwc': its kernels are for GPUs by NVIDIA"):
        labkit.make_step(elsewhere(tiny(), "cuda"), "nhwc")
