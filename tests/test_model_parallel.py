"""One network on several ranks, and one model on two devices: the outputs and gradients of one device."""

import copy
import itertools
from functools import partial

import model_parallel_jobs
import pytest
import torch
from killing import same
from several_ranks import run
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode

import labkit
from labkit import networks
from labkit.parallel import pipeline
from labkit.variants import two_devices

NEAR = 1e-10


@pytest.fixture(scope="module")
def ranks(tmp_path_factory):
    """The answers of two ranks, by their numbers: one launch for all tests."""
    return run(2, model_parallel_jobs.everything, tmp_path_factory.mktemp("ranks"))


# ---- tensor parallel


@pytest.mark.parametrize("kind", ["instance", "batch", "none", "biases"])
def test_a_split_block_is_the_whole_one(ranks, kind):
    for answers in ranks.values():
        block = answers["blocks"][kind]
        assert {"output", "input", "conv_block.1.weight", "conv_block.5.weight"} <= block["distances"].keys()
        assert max(block["distances"].values()) <= NEAR and max(block["states"].values()) <= NEAR
    assert ("conv_block.5.bias" in block["distances"]) == (kind in ("instance", "biases"))


def test_each_rank_has_half_of_a_split_block_and_adds_up_once_in_either_pass(ranks):
    weights = 3 * 3 * 4 * 6  # of either convolution, whole
    for answers in ranks.values():
        assert answers["blocks"]["none"]["parameters"] == weights
        assert answers["blocks"]["biases"]["parameters"] == weights + 6 // 2 + 4
        assert {block["all-reduces"] for block in answers["blocks"].values()} == {(1, 1)}


def test_a_generator_of_split_blocks_is_the_whole_one_in_every_layer(ranks):
    names = dict(model_parallel_jobs.small_generator().named_parameters())
    for answers in ranks.values():
        assert answers["generator"].keys() == {"output", *names}
        assert max(answers["generator"].values()) <= NEAR


@pytest.mark.skipif(torch.__version__ < "2.15", reason="earlier versions are wrong for other ways of splitting")
def test_dtensor_convolves_rightly_only_what_is_split_by_the_batch(ranks):
    """If PyTorch has learned more: say so in labkit/parallel/tensor.py. The block by hand stays right."""
    assert [answers["dtensor"] for answers in ranks.values()] == [{"batch"}, {"batch"}]


# ---- pipeline


@pytest.mark.parametrize("schedule", ["gpipe", "1f1b"])
def test_a_pipeline_is_the_whole_generator(ranks, schedule):
    first, last = (ranks[rank]["pipelines"][schedule] for rank in (0, 1))
    whole = model_parallel_jobs.small_generator().state_dict()
    assert first["names"] and last["names"] and [*first["names"], *last["names"]] == list(whole)
    for stage in (first, last):
        assert stage["same weights"] and list(stage["distances"]) == stage["names"]
        assert max(stage["distances"].values()) <= NEAR, "gradients of two batches, added up"
    assert first["outputs"] == [None, None]
    for output_and_loss in last["outputs"]:
        assert len(output_and_loss) == 2 and max(output_and_loss.values()) <= NEAR


def test_1f1b_keeps_the_activations_of_fewer_microbatches(ranks):
    passes = {
        schedule: [ranks[rank]["pipelines"][schedule]["passes"] for rank in (0, 1)] for schedule in ("gpipe", "1f1b")
    }
    assert passes == {"gpipe": ["FFFFBBBB", "FFFFBBBB"], "1f1b": ["FFBFBFBB", "FBFBFBFB"]}


@pytest.mark.parametrize(("blocks", "stages"), [(9, 2), (9, 4), (3, 9), (0, 6)])
def test_stages_are_whole_and_begin_where_nothing_is_in_place(blocks, stages):
    generator = networks.ResnetGenerator(blocks=blocks, width=4)
    cuts = pipeline._cuts(generator, stages)
    assert len(cuts) == stages + 1 and cuts[0] == 0 and cuts[-1] == len(generator.model)
    assert list(cuts) == sorted(set(cuts))
    for begin in cuts[1:-1]:
        assert not isinstance(generator.model[begin], (nn.ReLU, nn.Tanh, nn.InstanceNorm2d))
    assert sum(pipeline._work(generator)) == labkit.measure.count(generator, 64).flops


def test_stages_have_similar_work():
    generator = networks.ResnetGenerator(blocks=9, width=64)  # a block is four times a strided convolution
    stages = itertools.pairwise(pipeline._cuts(generator, 3))
    parts = [generator.model[begin:end] for begin, end in stages]
    assert [sum(isinstance(layer, networks.ResidualBlock) for layer in part) for part in parts] == [3, 3, 3]


def test_more_stages_than_layers_are_refused():
    with pytest.raises(labkit.LabkitError, match="10 ranks, but .* 9 stages at most"):
        pipeline._cuts(networks.ResnetGenerator(blocks=3, width=4), 10)


# ---- both


@pytest.mark.parametrize(
    ("mistake", "message"),
    {
        "uneven": "2 ranks cannot share the 5 channels between the block's convolutions evenly",
        "grouped": "not this Skip. Between the two convolutions a layer that looks across channels",
        "dropout": "dropout would draw other numbers",
        "twice": "not this SplitBlock",
        "unet": "UnetGenerator is none. In a U-Net skips lead from the first layers to the last ones",
        "batch norm": "batch norm would take its mean over a microbatch",
        "schedule": "schedule='1f1f' is unknown (did you mean '1f1b'?)",
        "microbatches": "Number of microbatches (1) must be greater than or equal to the number of stages (2)",
        "batch": "2 microbatches cannot share a batch of 5 pictures evenly: give a multiple of 2",
    }.items(),
)
def test_a_mistake_is_named_on_every_rank(ranks, mistake, message):
    for answers in ranks.values():
        assert message in answers["refused"][mistake]


# ---- two devices. That it computes the baseline, alone and in every pair, tests/test_speedups.py says.


def fake_step(model, *names):
    """A step of two_devices whose GPUs know shapes only, and the losses of its second batch.

    Operators of `FakeTensorMode` refuse tensors of different devices, so a move that is forgotten is an error. On fake
    CUDA devices PyTorch computes no gradients without a driver, so these two are of type "lazy".
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(two_devices, "next_device", lambda here: torch.device("lazy", 1 - here.index))
        patch.setattr(nn.Module, "to", _move)  # the real one cannot replace fake weights
        with FakeTensorMode():
            for module in model.modules():
                for name, weight in list(module.named_parameters(recurse=False)):
                    setattr(module, name, nn.Parameter(torch.empty(weight.shape, device="lazy:0")))
            step = labkit.make_step(model, "two_devices", *names)
            step.range_checked = True  # there are no values to check
            pictures = [torch.empty(2, 3, 16, 16, device="lazy:0") for _ in range(2)]
            step(*pictures)
            return step, step(*pictures)


def _move(network, device):
    for weight in network.parameters():
        weight.fake_device = device


@pytest.mark.parametrize("others", [(), ("accumulate", "out_of_place", "batched")], ids=["alone", "stacked"])
def test_no_operator_of_a_step_mixes_devices(tiny, others):
    model = tiny(pool_size=3)
    step, losses = fake_step(model, *others)
    for network, device in ((model.G_A, 0), (model.D_A, 0), (model.G_B, 1), (model.D_B, 1)):
        assert {weight.device for weight in network.parameters()} == {torch.device("lazy", device)}
    assert {loss.device.index for loss in losses.values()} == {0}
    assert {pool.buffer.device.index for pool in model.pools.values()} == {0}
    for optimizer in step.optimizers.values():
        assert {state["exp_avg"].device == weight.device for weight, state in optimizer.state.items()} == {True}


@pytest.mark.parametrize("hook", ["_take_along", "_bring_back"])
def test_a_move_that_is_forgotten_is_noticed(tiny, monkeypatch, hook):
    monkeypatch.setattr(two_devices, hook, lambda *arguments: None)
    with pytest.raises(RuntimeError, match="same device|two different devices"):
        fake_step(tiny())


@pytest.fixture
def on_two(monkeypatch):
    """Lets two_devices act here: its second device is the CPU by another name."""
    monkeypatch.setattr(two_devices, "next_device", lambda here: torch.device("cpu:0"))


def test_both_ways_out_are_launched_before_both_ways_back(tiny, batch, on_two):
    def order(*names):
        model, pictures, calls = tiny(lambda_identity=0.0), batch(), []
        step = labkit.make_step(model, *names)

        def note(name, network, inputs):
            calls.append((name, "out" if any(inputs[0] is real for real in pictures) else "back"))

        for name in ("G_A", "G_B"):
            getattr(model, name).register_forward_pre_hook(partial(note, name))
        step(*pictures)
        return calls

    cycles = [("G_A", "out"), ("G_B", "back"), ("G_B", "out"), ("G_A", "back")]
    assert order() == cycles
    assert order("two_devices") == [cycles[0], cycles[2], cycles[1], cycles[3]]


def test_a_model_on_two_devices_keeps_its_names_and_gets_its_hooks_once(tiny, batch, on_two):
    model, names = tiny(), list(tiny().state_dict())
    for _ in range(2):
        labkit.make_step(model, "two_devices")
    assert list(model.state_dict()) == names
    hooks = [(len(net._forward_pre_hooks), len(net._forward_hooks)) for net in (model.G_A, model.G_B, model.D_B)]
    assert hooks == [(0, 0), (1, 1), (1, 1)]
    twin = copy.deepcopy(model).double()
    assert twin.G_B(batch(dtype=torch.float64)[0]).dtype == torch.float64


def test_a_copy_of_a_step_on_two_devices_goes_on_as_the_original(tiny, batch, on_two):
    step = labkit.make_step(tiny(), "two_devices")
    step(*batch())
    twin = copy.deepcopy(step)
    assert same(twin(*batch(seed=1)), step(*batch(seed=1)))
    (hook,) = twin.model.G_B._forward_hooks.values()
    assert hook.args == (twin.model.G_A,), "it brings the result to the copy's device"


def test_the_second_device_is_the_next_gpu(monkeypatch):
    cuda = [torch.device("cuda", index) for index in range(3)]
    for n, after in {1: [0], 2: [1, 0], 3: [1, 2, 0]}.items():
        monkeypatch.setattr(torch.cuda, "device_count", lambda n=n: n)
        assert [two_devices.next_device(here) for here in cuda[:n]] == [cuda[index] for index in after]
        assert two_devices.next_device(torch.device("cpu")) == torch.device("cpu")


def test_dropout_is_refused_on_two_devices(tiny):
    model = tiny()
    model.G_B.model[10].conv_block.insert(4, nn.Dropout(0.5))
    with pytest.raises(labkit.LabkitError, match="dropout would draw other random numbers"):
        labkit.make_step(model, "two_devices")
