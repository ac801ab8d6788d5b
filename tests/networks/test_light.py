"""Light generators: cheaper than what they lighten, and in all else the same."""

import copy

import pytest
import torch

import labkit
from labkit.measure.roofline import count, flop_counter, multiply_adds
from labkit.networks.generators import make_generator
from labkit.networks.light import LIGHT, SqueezeExcitation, grouped_block, inverted_block, separable_block

each = pytest.mark.parametrize("name", LIGHT)


@each
def test_a_light_generator_has_fewer_parameters_and_less_work(name):
    light, full = (count(make_generator(one, 16), 32) for one in (name, "resnet_9blocks"))
    assert light.parameters < 0.75 * full.parameters and light.flops < 0.75 * full.flops


@each
def test_a_light_generator_trains_in_a_cyclegan(tiny, batch, name):
    step = labkit.make_step(tiny(generator=name, norm="instance_blocks"), "bf16")
    before = copy.deepcopy(step.model.G_A)
    assert all(loss.isfinite() for loss in step(*batch()).values())
    assert not any(map(torch.equal, step.model.G_A.parameters(), before.parameters())), "every weight takes part"


def test_blocks_multiply_as_often_as_their_sources_say():
    size = channels = 16
    pixels = size * size

    def products(block):
        with flop_counter() as counter, torch.no_grad():
            block(torch.zeros(1, channels, size, size))
        return counter.get_total_flops() / 2

    assert products(separable_block(channels)) == 2 * pixels * (9 * channels + channels**2)
    assert products(grouped_block(channels)) == 2 * pixels * 9 * channels**2 / 4
    inner = 4 * channels
    around_the_gates = pixels * (2 * channels * inner + 9 * inner)
    assert products(inverted_block(channels)) == around_the_gates + 2 * inner * channels // 4


def test_a_gradient_of_a_grouped_convolution_costs_what_its_forward_pass_does():
    picture = torch.zeros(1, 8, 6, 6, requires_grad=True)
    for groups in (1, 2, 8):
        for convolution in (torch.nn.Conv2d, torch.nn.ConvTranspose2d):
            with flop_counter() as forward:
                result = convolution(8, 16, 3, groups=groups)(picture).sum()
            with flop_counter() as backward:
                result.backward()
            assert backward.get_total_flops() == 2 * forward.get_total_flops() > 0


@pytest.mark.parametrize("block", [separable_block, grouped_block, inverted_block])
def test_a_change_in_one_channel_reaches_all_others(block):
    torch.manual_seed(0)
    layers = torch.nn.Sequential(block(8, "none"), block(8, "none"))
    picture = torch.rand(1, 8, 8, 8)
    slopes = torch.autograd.functional.jacobian(lambda x: layers(x)[0, :, 4, 4], picture)  # (to, 1, from, H, W)
    assert (slopes.abs().amax((1, 3, 4)) > 0).all()


def test_gates_let_through_between_nothing_and_all():
    torch.manual_seed(0)
    layer = SqueezeExcitation(8, 4)
    picture = torch.rand(2, 8, 4, 4) + 1
    gates = layer(picture) / picture
    assert gates.min() >= 0 and gates.max() <= 1
    assert torch.allclose(gates, gates[..., :1, :1].expand_as(gates)), "one gate a channel"
    assert gates.std((0, 1)).max() > 0, "not the same for all"


@pytest.mark.parametrize(("channels", "kernel", "groups"), [((8, 16), 3, 1), ((8, 16), 3, 8), ((8, 4), 1, 2)])
def test_multiply_adds_are_half_the_flops_that_pytorch_counts(channels, kernel, groups):
    layer = torch.nn.Conv2d(*channels, kernel, groups=groups)
    with flop_counter() as counter, torch.no_grad():
        layer(torch.zeros(1, channels[0], kernel, kernel))  # one output pixel
    assert multiply_adds(*channels, kernel, groups) == counter.get_total_flops() / 2
