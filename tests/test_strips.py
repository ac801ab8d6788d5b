"""A picture in strips comes out as the whole picture does: every generator, every norm, any number of strips."""

from pathlib import Path

import pytest
import torch
from torch import nn

import labkit
from labkit import devices
from labkit.data.images import read_picture, write_picture
from labkit.model import run_network
from labkit.networks.generators import GENERATORS, make_generator
from labkit.training import large, strips
from labkit.training.large import AnySize

TRAINED = Path(__file__).parents[1] / "data" / "checkpoints" / "deviation_1"


def vivid(name, norm="instance", width=4):
    """An untrained generator whose output is as rich in contrast as a trained one's."""
    torch.manual_seed(0)
    network = make_generator(name, width, norm)
    for weight in network.parameters():
        weight.data.mul_(2)
    return network


def noise(height, width, seed=0):
    return torch.rand(1, 3, height, width, generator=torch.Generator().manual_seed(seed)) * 2 - 1


def smooth(height, width):
    """A sky above a sea: colours that change slowly, where a seam would be seen."""
    rows, columns = torch.linspace(-1, 1, height)[:, None], torch.linspace(-1, 1, width)[None]
    sea = (rows > 0.2).float()
    return torch.stack(torch.broadcast_tensors(rows * columns, 0.5 * rows + 0.3 * sea, 0.8 - 0.5 * sea))[None]


@pytest.fixture(autouse=True)
def memory_is_always_asked_for(monkeypatch):
    monkeypatch.setattr(large, "ASKED_ABOVE", 0)


@pytest.mark.parametrize("norm", ["instance", "batch", "none", "instance_blocks"])
@pytest.mark.parametrize("name", GENERATORS)
def test_strips_give_the_whole_picture(name, norm):
    if norm == "instance_blocks" and name.startswith("unet"):
        pytest.skip("a U-Net has no blocks")
    network = vivid(name, norm)
    picture = noise(256, 256) if name.startswith("unet") else noise(72, 52)
    whole = run_network(network, picture)
    for number in (3, 30):
        torch.testing.assert_close(strips.in_strips(network, picture, number), whole, atol=2e-5, rtol=0)
    assert network.training, "the network is left in the mode it was in"


@pytest.mark.parametrize("picture", [noise(240, 160), smooth(240, 160)], ids=["noise", "smooth"])
@pytest.mark.parametrize("network", ["trained", "resnet_9blocks", "unet_128"])
def test_a_picture_larger_than_the_memory_has_no_seams(tmp_path, monkeypatch, taken, network, picture):
    """As many seams as there are strips; 8-bit files, as a user compares them."""
    network = labkit.load_model(TRAINED).translator() if network == "trained" else vivid(network)
    write_picture(labkit.to_uint8(picture[0]), tmp_path / "in.png")
    labkit.translate(network, tmp_path / "in.png", tmp_path / "whole.png")
    monkeypatch.setattr(AnySize, "room", lambda self: 160 * 16)
    labkit.translate(network, tmp_path / "in.png", tmp_path / "strips.png")
    assert len(taken) == 1 and taken[0] >= 30
    whole, parts = (read_picture(tmp_path / f"{name}.png").int() for name in ("whole", "strips"))
    assert whole.float().std() > 5, "a picture that shows something"
    assert (whole - parts).abs().max() <= 1 and (whole - parts).abs().float().mean() < 0.01


class Own(nn.Module):
    """A network of the user's own: nothing is made smaller, blocks follow each other, a gate from global means."""

    multiple = least = 1

    def __init__(self):
        super().__init__()
        self.first = nn.Conv2d(3, 8, 5, padding=(2, 4), dilation=(1, 2), groups=1)
        self.norms = nn.ModuleList(nn.InstanceNorm2d(8, affine=True) for _ in range(5))
        self.convs = nn.ModuleList(nn.Conv2d(8, 8, 3, padding=1) for _ in range(5))
        self.last = nn.ConvTranspose2d(8, 3, 3, padding=1)
        for number, norm in enumerate(self.norms):
            nn.init.normal_(norm.weight, 1 + number)
            nn.init.normal_(norm.bias)

    def forward(self, x):
        x = self.first(x)
        for norm, conv in zip(self.norms, self.convs, strict=True):
            x = x + torch.relu(norm(conv(x))) * x.mean((2, 3), keepdim=True)
        return self.last(x / x.square().mean(dim=(1, 2, 3), keepdim=True).sqrt()).tanh()


def test_a_network_of_ones_own_in_strips():
    torch.manual_seed(0)
    network, picture = Own(), noise(41, 30)
    assert strips.can_follow(network, noise(20, 20))
    torch.testing.assert_close(strips.in_strips(network, picture, 6), run_network(network, picture), atol=1e-4, rtol=0)


class Half(nn.Module):
    """Networks that strips cannot follow, or would follow wrongly."""

    multiple, least = 4, 8

    def __init__(self, layer, function=lambda x: x):
        super().__init__()
        self.layers, self.function = nn.Sequential(nn.Conv2d(3, 4, 1), layer, nn.Conv2d(4, 3, 1)), function

    def forward(self, x):
        return self.function(self.layers(x))


@pytest.mark.parametrize(
    "network",
    [
        Half(nn.GroupNorm(2, 4)),
        Half(nn.Conv2d(4, 4, 3, padding="same")),
        Half(nn.Conv2d(4, 4, 3, padding=1, padding_mode="circular")),
        Half(nn.ReflectionPad2d(0), lambda x: x.flip(2)),
        Half(nn.ReflectionPad2d(0), lambda x: x if x.mean() > 0 else -x),
        Half(nn.ReflectionPad2d(0), lambda x: x - x.mean()),
        Half(nn.ReflectionPad2d(0), lambda x: nn.functional.avg_pool2d(torch.cat([x, x], 2), (2, 1))),
    ],
    ids=["group norm", "same", "circular", "flip", "branch", "mean of all", "cat of rows"],
)
def test_networks_that_strips_cannot_follow_are_found_out(network):
    assert not strips.can_follow(network, noise(8, 8))
    pictures = noise(16, 16)
    torch.testing.assert_close(AnySize(network)(pictures), network(pictures).detach())


def test_dropout_is_off_and_training_mode_comes_back():
    network = Half(nn.Dropout(0.5))
    assert strips.can_follow(network, noise(8, 8)) and network.training


@pytest.fixture
def taken(monkeypatch):
    """The numbers of strips in which pictures were translated."""
    numbers = []
    monkeypatch.setattr(large, "in_strips", lambda *given: numbers.append(given[2]) or strips.in_strips(*given))
    return numbers


def test_whole_where_the_memory_allows_and_in_strips_elsewhere(monkeypatch, taken):
    runs, picture = AnySize(vivid("resnet_3blocks")), noise(64, 64)
    whole = run_network(runs.network, picture)
    assert torch.equal(runs(picture), whole) and runs.room() > 64 * 64
    assert not taken
    monkeypatch.setattr(large, "free_memory", lambda device: 2 * runs._bytes_per_pixel * 1000)
    torch.testing.assert_close(runs(picture), whole, atol=1e-5, rtol=0)
    assert taken == [6], "strips of half the memory: 4096 pixels, and room for 1600"


@pytest.mark.parametrize(
    "error",
    [
        torch.OutOfMemoryError("the GPU is full"),
        RuntimeError("DefaultCPUAllocator: can't allocate memory"),
        MemoryError(),
    ],
)
def test_strips_take_over_if_the_memory_was_not_what_it_seemed(monkeypatch, taken, error):
    runs, picture = AnySize(vivid("resnet_3blocks")), noise(64, 64)
    whole = run_network(runs.network, picture)
    assert runs.room() > 64 * 64

    def full(network, picture):
        raise error

    monkeypatch.setattr(large, "run_network", full)
    torch.testing.assert_close(runs(picture), whole, atol=1e-5, rtol=0)
    assert taken == [1]
    monkeypatch.setattr(large, "in_strips", lambda *_: full(*_[:2]))
    with pytest.raises(labkit.LabkitError, match="64x64 pixels, even in strips"):
        runs(picture)


def test_other_errors_of_a_network_are_not_taken_for_lack_of_memory():
    with pytest.raises(RuntimeError, match="channels"):
        AnySize(vivid("resnet_3blocks"))(torch.rand(1, 4, 16, 16))


def test_a_picture_too_large_even_in_strips_is_refused_with_a_remedy(monkeypatch):
    network, picture = vivid("resnet_3blocks"), noise(64, 64)
    monkeypatch.setattr(large, "free_memory", lambda device: 1000)
    monkeypatch.setattr(strips, "free_memory", lambda device: 1 << 20)
    assert AnySize(network)(picture).shape == picture.shape
    monkeypatch.setattr(strips, "free_memory", lambda device: 1000)
    runs = AnySize(network)
    runs._can_follow = True
    with pytest.raises(labkit.LabkitError, match=r"even in strips.*\(--size, [^\n]*\.$"):
        runs(picture)


@pytest.mark.parametrize("name", ["resnet_9blocks", "unet_256"])
def test_the_memory_needed_is_that_of_the_largest_operator_twice(name):
    """ngf 8 at full size: 8 channels in and 8 out, 4 bytes each; a U-Net's are at half the size."""
    channels = {"resnet_9blocks": 16, "unet_256": 2 * 2 * 8 / 4}[name]
    assert AnySize(make_generator(name, 8))._bytes_per_pixel == pytest.approx(2 * 4 * channels, rel=0.3)


def test_free_memory_is_asked_of_the_machine(monkeypatch):
    free = devices.free_memory()
    assert 1 << 20 < free < 1 << 50
    monkeypatch.setattr(devices.torch.cuda, "mem_get_info", lambda device: (1000, 5000))
    monkeypatch.setattr(devices.torch.cuda, "memory_reserved", lambda device: 300)
    monkeypatch.setattr(devices.torch.cuda, "memory_allocated", lambda device: 100)
    assert devices.free_memory("cuda") == 1200

    def missing(*_):
        raise OSError("no /proc here")

    monkeypatch.setattr("builtins.open", missing)
    monkeypatch.setattr(devices.Path, "read_text", missing)
    monkeypatch.setattr(devices.os, "sysconf", {"SC_PHYS_PAGES": 1000, "SC_PAGE_SIZE": 4096}.__getitem__)
    assert devices.free_memory() == 1000 * 4096 // 2
    monkeypatch.delattr(devices.os, "sysconf")
    assert devices.free_memory() == 8 << 30
