"""Custom networks in CycleGAN: trained, resumed, translated with, exported, sped up, or refused with why."""

import contextlib
import threading

import pytest
import torch
from killing import same_weights
from torch import nn

import labkit
from labkit.data.images import read_picture, write_picture


class Mine(nn.Module):
    """A generator that labkit knows nothing of; it halves the picture three times."""

    size_multiple, min_size = 8, 24

    def __init__(self, width=4):
        super().__init__()
        self.down = nn.Sequential(nn.Conv2d(3, width, 8, 8), nn.InstanceNorm2d(width), nn.ReLU(True))
        self.up = nn.Upsample(scale_factor=8)
        self.out = nn.Conv2d(width + 3, 3, 3, padding=1)

    def forward(self, x):
        return torch.tanh(self.out(torch.cat([x, self.up(self.down(x))], 1)))


class Judge(nn.Sequential):
    """A discriminator without `size_multiple` and `min_size`."""

    def __init__(self):
        super().__init__(nn.Conv2d(3, 4, 4, 2), nn.LeakyReLU(0.2), nn.Conv2d(4, 1, 3))


def tiny_with(tiny, network=Mine, **settings):
    torch.manual_seed(1)
    made = {name: value() if isinstance(value, type) else value for name, value in settings.items()}
    return tiny(generator=network() if isinstance(network, type) else network, **made)


def test_a_module_is_copied_for_either_direction(tiny):
    mine = Mine()
    model = tiny(generator=mine)
    assert same_weights(model.G_A, mine) and same_weights(model.G_B, mine)
    assert len({id(network) for network in (mine, model.G_A, model.G_B)}) == 3
    assert model.settings["generator"] == "own: Mine" and (model.size_multiple, model.min_size) == (8, 24)


class Own(nn.Module):
    """A network of one layer, used otherwise than a layer."""

    def __init__(self, use, **attributes):
        super().__init__()
        self.layer, self.use = nn.Conv2d(3, 3, 3, padding=1), use
        vars(self).update(attributes)

    def forward(self, x):
        return self.use(self.layer, x)


GENERATORS = {
    "no weights": (nn.ReLU(), "none"),
    "no module": (7, "generator=7: .* or a bare nn.Module"),
    "a class": (Mine, "call its class"),
    "lazy": (nn.LazyConv2d(3, 3), "lazy torch.float32"),
    "scripted": (torch.jit.trace(nn.Conv2d(3, 3, 3), torch.zeros(1, 3, 9, 9)), "weights of none"),
    "wrapped": (nn.DataParallel(Mine()), "a DataParallel"),
    "compiled": (torch.compile(Mine(), backend="eager"), "a OptimizedModule"),
    "16 bits": (nn.Conv2d(3, 3, 3).bfloat16(), "torch.bfloat16 on cpu"),
    "two devices": (nn.Sequential(nn.Conv2d(3, 3, 3), nn.Conv2d(3, 3, 3, device="meta")), "on meta"),
    "a lock": (Own(None, lock=threading.Lock()), "cannot pickle"),
    "no size": (Own(None, size_multiple=0), "'size_multiple': 0"),
    "two sizes": (Own(None, size_multiple=(8, 8)), "'tuple' object"),
    "smaller": (nn.Sequential(nn.Conv2d(3, 3, 3)), r"G_A .Sequential. on pictures .*: it returns .* \(2, 3, 30, 30\)"),
    "grey": (nn.Conv2d(3, 1, 1), r"returns torch.float32 of shape \(2, 1, 32, 32\)"),
    "a list": (Own(lambda layer, x: [layer(x)]), "'list' object"),
    "two arguments": (Own(lambda layer, x: layer(x, x)), "takes 2 positional"),
    "other channels": (nn.Conv2d(4, 3, 1), "to have 4 channels"),
    "in place": (Own(lambda layer, x: layer(x.mul_(2))), "in-place operation.*change no input"),
    "in 64 bits": (Own(lambda layer, x: layer(x).double()), "returns torch.float64"),
    "no gradient": (Own(lambda layer, x: layer(x).detach()), "does not require grad"),
    "NumPy": (Own(lambda layer, x: layer(torch.from_numpy(x.numpy()))), "Can't call numpy"),
}
DISCRIMINATORS = {  # None: it trains
    "several": (Own(lambda layer, x: [layer(x), layer(x)]), r"D_A .Own. .*'list' object.*torch\.cat"),
    "a fraction": (Own(lambda layer, x: layer(x).mean().item()), "'float' object"),
    "too small": (nn.Conv2d(3, 1, 40), "Kernel size can't be greater"),
    "right or wrong": (Own(lambda layer, x: layer(x) > 0), "does not require grad"),
    "one for each picture": (Own(lambda layer, x: layer(x).mean((1, 2, 3))), None),
    "one for all": (Own(lambda layer, x: layer(x).mean()), None),
    "probabilities": (Own(lambda layer, x: layer(x).sigmoid()), None),
}


@pytest.mark.parametrize("name", [*GENERATORS, *DISCRIMINATORS])
def test_a_custom_network_trains_or_is_refused_in_the_first_step(tiny, batch, name):
    argument, cases = ("generator", GENERATORS) if name in GENERATORS else ("discriminator", DISCRIMINATORS)
    network, message = cases[name]
    with pytest.raises(labkit.LabkitError, match=message) if message else contextlib.nullcontext():
        labkit.make_step(tiny(**{argument: network}))(*batch(2))


def test_frozen_weights_stay(tiny, batch):
    mine = Mine()
    mine.down.requires_grad_(False)
    model = tiny(generator=mine)
    labkit.make_step(model)(*batch())
    assert same_weights(model.G_A.down, mine.down) and not same_weights(model.G_A.out, mine.out)


def test_a_run_is_resumed_loaded_and_translated_with(tiny, fruit, tmp_path):
    whole = labkit.fit(labkit.make_step(tiny_with(tiny)), fruit, 4)
    labkit.fit(labkit.make_step(tiny_with(tiny)), fruit, 2, checkpoint=tmp_path)
    resumed = labkit.fit(labkit.make_step(tiny_with(tiny)), fruit, 4, checkpoint=tmp_path)
    assert same_weights(whole.model, resumed.model)
    with pytest.raises(labkit.errors.CheckpointError, match=r"network of your own .Mine.*generator=\.\.\."):
        labkit.load_model(tmp_path)
    loaded = labkit.load_model(tmp_path, generator=Mine())
    assert same_weights(loaded, whole.model)
    write_picture(torch.randint(255, (3, 37, 50), dtype=torch.uint8), tmp_path / "in.png")
    for number, model in enumerate((whole.model, loaded)):
        labkit.translate(model, tmp_path / "in.png", tmp_path / f"{number}.png")
    assert torch.equal(*(read_picture(tmp_path / f"{number}.png") for number in (0, 1)))
    with pytest.raises(RuntimeError, match="size mismatch for G_A.down.0"):
        labkit.load_model(tmp_path, generator=Mine(8))
    with pytest.raises(RuntimeError, match="Error.s. in loading state_dict for CycleGAN"):
        labkit.load_model(tmp_path, generator=Mine(), discriminator=Judge())
    with pytest.raises(labkit.errors.CheckpointError, match="of other networks: .*size mismatch for G_A.down.0"):
        labkit.fit(labkit.make_step(tiny(generator=Mine(8))), fruit, 5, checkpoint=tmp_path)
    other = tiny(generator=Mine(), lambda_a=5.0)
    labkit.init_from(other, tmp_path)  # lambda_a is no part of the networks
    assert same_weights(other, whole.model)


def test_too_little_memory_is_no_fault_of_the_network():
    with pytest.raises(torch.OutOfMemoryError), labkit.errors.explained("G_A", "Return one tensor."):
        raise torch.OutOfMemoryError("CUDA out of memory.")


@pytest.mark.slow
def test_it_is_exported(tiny, tmp_path):
    assert labkit.export(tiny_with(tiny), tmp_path / "mine.onnx") < 1e-4


def test_exact_speedups_give_the_same(tiny, batch):
    exact = ("batched", "channels_last", "fused_adam", "out_of_place", "recompute", "accumulate")
    steps = [labkit.make_step(tiny_with(tiny, discriminator=Judge).double(), *names) for names in ((), exact)]
    losses = [[step(*batch(2, seed=seed, dtype=torch.float64)) for seed in range(2)] for step in steps]
    torch.testing.assert_close(losses[1], losses[0], rtol=1e-9, atol=1e-8)
