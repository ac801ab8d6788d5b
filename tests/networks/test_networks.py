"""Networks are the public reference's: sizes, names, and the pictures they take."""

import itertools

import pytest
import torch

from labkit.networks.generators import GENERATORS, make_generator
from labkit.networks.patchgan import make_discriminator

# Of each generator, of the discriminators by name, and of "n_layers" with one layer and more.
OF_GENERATORS = dict(resnet_9blocks=11_378_179, resnet_6blocks=7_837_699, unet_256=54_409_603, unet_128=41_825_667)
OF_LAYERS = {1: 136_385, 2: 662_977, 3: 2_764_737, 4: 6_959_553, 5: 11_154_369}


def test_networks_have_the_published_number_of_parameters():
    def numbers(make, names, **settings):
        with torch.device("meta"):
            return {name: sum(weight.numel() for weight in make(name, **settings).parameters()) for name in names}

    assert numbers(make_generator, OF_GENERATORS) == OF_GENERATORS
    assert numbers(make_discriminator, ("basic", "pixel")) == {"basic": OF_LAYERS[3], "pixel": 8_705}
    for layers, number in OF_LAYERS.items():
        assert numbers(make_discriminator, ["n_layers"], n_layers=layers) == {"n_layers": number}


def test_a_bias_before_instance_norm_reaches_no_output(tiny):
    model, pictures = tiny().double(), torch.rand(2, 3, 32, 32, dtype=torch.float64)
    before = [network(pictures) for network in model.children()]
    for layer, after in itertools.pairwise(model.modules()):
        if isinstance(after, torch.nn.InstanceNorm2d):
            layer.bias.data += torch.randn_like(layer.bias)
    after = [network(pictures) for network in model.children()]
    torch.testing.assert_close(after, before, rtol=0, atol=1e-12)


def pairs(*stems):
    return {f"{stem}.{kind}" for stem in stems for kind in ("weight", "bias")}


def test_resnet_names_are_the_published_ones():
    blocks = [f"model.{block}.conv_block.{layer}" for block in range(10, 19) for layer in (1, 5)]
    ends = [f"model.{layer}" for layer in (1, 4, 7, 19, 22, 26)]
    assert set(make_generator("resnet_9blocks", width=2).state_dict()) == pairs(*ends, *blocks)


@pytest.mark.parametrize(("name", "halvings"), [("unet_256", 8), ("unet_128", 7)])
def test_unet_names_are_the_published_ones(name, halvings):
    expected, prefix = pairs("model.model.0", "model.model.3"), "model.model.1"
    for _ in range(halvings - 2):
        expected |= pairs(f"{prefix}.model.1", f"{prefix}.model.5")
        prefix += ".model.3"
    expected |= pairs(f"{prefix}.model.1", f"{prefix}.model.3")
    assert set(make_generator(name, width=2).state_dict()) == expected


def test_discriminator_names_are_the_published_ones():
    assert set(make_discriminator("basic", 2).state_dict()) == pairs(*(f"model.{i}" for i in (0, 2, 5, 8, 11)))
    assert set(make_discriminator("pixel", 2).state_dict()) == pairs(*(f"net.{i}" for i in (0, 2, 5)))


def test_batch_norm_takes_the_place_of_biases():
    names = set(make_generator("resnet_3blocks", 2, norm="batch").state_dict())
    assert "model.2.running_mean" in names and "model.1.bias" not in names and "model.20.bias" in names


WITH_NORMS = [*itertools.product(GENERATORS, ("instance", "batch", "none")), ("resnet_3blocks", "instance_blocks")]


@pytest.mark.parametrize(("name", "norm"), WITH_NORMS)
def test_generators_keep_the_size_and_stay_in_range(name, norm):
    network = make_generator(name, width=2, norm=norm)
    size = (network.min_size, network.min_size + network.size_multiple)
    picture = torch.rand(2, 3, *size) * 2 - 1
    translated = network(picture)
    assert translated.shape == picture.shape
    assert translated.abs().max() <= 1


@pytest.mark.parametrize(("name", "smooth"), [("resnet_3blocks_resize", True), ("resnet_3blocks", False)])
def test_a_flat_picture_has_a_checkerboard_unless_pixels_are_repeated(name, smooth):
    torch.manual_seed(0)
    middle = make_generator(name, 4)(torch.full((1, 3, 160, 160), 0.5))[..., 76:84, 76:84]  # no border reaches it
    assert ((middle.amax((2, 3)) - middle.amin((2, 3))).max() < 1e-6) == smooth


@pytest.mark.parametrize(("name", "n_layers"), [("pixel", 3), *(("n_layers", n) for n in range(1, 6))])
def test_least_is_the_smallest_picture_a_discriminator_can_judge(name, n_layers):
    judge = make_discriminator(name, 2, n_layers)
    assert judge(torch.zeros(1, 3, judge.min_size, judge.min_size)).numel() >= 1
    with pytest.raises((RuntimeError, ValueError)):
        judge(torch.zeros(1, 3, judge.min_size - 1, judge.min_size - 1))


def test_instance_blocks_let_the_absolute_colour_through():
    texture = torch.rand(1, 3, 16, 16, generator=torch.Generator().manual_seed(0)) * 0.5
    for norm, seen in (("instance_blocks", True), ("instance", False)):
        network = make_generator("resnet_3blocks", 4, norm)
        dark, bright = (network(texture + offset) for offset in (-0.5, 0.0))
        assert ((dark - bright).abs().max() > 1e-3) == seen


def test_the_skips_of_a_unet_carry_detail_past_the_bottleneck():
    torch.manual_seed(0)
    network = make_generator("unet_128", width=2)
    picture = torch.rand(1, 3, 128, 128, requires_grad=True)
    network(picture)[0, 0, 64, 64].backward()
    near = picture.grad[..., 60:69, 60:69].abs().mean()
    assert near > 5 * picture.grad.abs().mean()
