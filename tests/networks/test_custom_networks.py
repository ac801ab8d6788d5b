"""Custom networks in CycleGAN: trained, resumed, translated with, exported, sped up, or refused with why."""

import pytest
import torch
from killing import same_weights
from torch import nn

import labkit
from labkit.data.images import read_picture, write_picture
from labkit.training.reference_weights import export_reference


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


REFUSED = [(nn.ReLU(), "with weights to train"), (7, "give a name, or an nn.Module"), (Mine, "call its class")]


@pytest.mark.parametrize(("generator", "message"), REFUSED)
def test_what_cannot_be_two_generators_is_refused(tiny, generator, message):
    with pytest.raises(labkit.LabkitError, match=message):
        tiny(generator=generator)


def test_the_first_batch_tells_what_is_no_generator(tiny, batch):
    step = labkit.make_step(tiny(generator=nn.Sequential(nn.Conv2d(3, 3, 3))))
    with pytest.raises(labkit.LabkitError, match=r"G_A .Sequential. turns .* \(1, 3, 32, 32\) into \(1, 3, 30, 30\)"):
        step(*batch())
    with pytest.raises(labkit.LabkitError, match="multiples of 8 and at least 24"):
        labkit.make_step(tiny(generator=Mine()))(*batch(size=36))


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
    with pytest.raises(labkit.errors.CheckpointError, match="of other networks .*size mismatch for G_A.down.0.*resume"):
        labkit.fit(labkit.make_step(tiny(generator=Mine(8))), fruit, 5, checkpoint=tmp_path)
    other = tiny(generator=Mine(), lambda_a=5.0)
    labkit.init_from(other, tmp_path)  # lambda_a is no part of the networks
    assert same_weights(other, whole.model)


@pytest.mark.slow
def test_it_is_exported(tiny, tmp_path):
    assert labkit.export(tiny_with(tiny), tmp_path / "mine.onnx") < 1e-4
    with pytest.raises(labkit.LabkitError, match="generator='own: Mine', .*the public reference has no such networks"):
        export_reference(tiny_with(tiny), tmp_path / "reference")


def test_exact_speedups_give_the_same(tiny, batch):
    exact = ("batched", "channels_last", "fused_adam", "out_of_place", "recompute", "accumulate")
    steps = [labkit.make_step(tiny_with(tiny, discriminator=Judge).double(), *names) for names in ((), exact)]
    losses = [[step(*batch(2, seed=seed, dtype=torch.float64)) for seed in range(2)] for step in steps]
    torch.testing.assert_close(losses[1], losses[0], rtol=1e-9, atol=1e-8)
