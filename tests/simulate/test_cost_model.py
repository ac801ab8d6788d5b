"""The cost of each kind of operator: its kernels, their arithmetic in tiles and rounds, and the bytes they move."""

from dataclasses import replace

import pytest
import torch

from labkit.simulate import ROOFLINES, cost_model, parts_of, program_operators, step_operators
from labkit.simulate.cost_model import Roofline, kernels


@pytest.fixture
def arithmetic(monkeypatch):
    """A device whose only cost is arithmetic, 1 FLOP a microsecond in all types, in tiles that fit every picture."""
    monkeypatch.setattr(cost_model, "TILES", (1,))
    monkeypatch.setattr(cost_model, "FULL_TILE", 1)
    rates = dict.fromkeys(("float32", "tfloat32", "float16"), 1e6)
    return Roofline("none", rates, 1e30, flops_share=1.0, least_us=0.0, multiprocessors=1)


def microseconds(operators, device):
    return sum(kernel.us for kernel in kernels(operators, device))


def operators_of(layer, *shape, dtype=torch.float32):
    """The operators of a layer's forward pass, and of its gradients where it is training."""
    layer = layer.to("meta", dtype)
    picture = torch.empty(shape, device="meta", dtype=dtype, requires_grad=layer.training)
    run = (lambda: layer(picture).sum().backward()) if layer.training else (lambda: layer(picture))
    with torch.set_grad_enabled(layer.training):
        return program_operators(run)


def test_the_kernels_of_an_operator_do_its_work(tiny, arithmetic):
    small = step_operators(tiny(), size=32)
    aligned = [one for one in small if one.flops and all(shape[1] % 4 == 0 for shape in one.inputs[:2])]
    assert sum(one.flops for one in aligned) > 0.3 * sum(one.flops for one in small)
    assert microseconds(aligned, arithmetic) == pytest.approx(sum(one.flops for one in aligned))


WINOGRAD = [
    (torch.nn.Conv2d(4, 8, 3, padding=1), (1, 4, 12, 12), True),
    (torch.nn.Conv2d(4, 8, 3, stride=2, padding=1), (1, 4, 12, 12), False),
    (torch.nn.Conv2d(8, 8, 3, padding=1, groups=2), (1, 8, 12, 12), False),
    (torch.nn.Conv2d(4, 8, 1), (1, 4, 12, 12), False),
    (torch.nn.Conv2d(4, 8, (3, 1)), (1, 4, 12, 12), False),
    (torch.nn.ConvTranspose2d(4, 4, 3, stride=2, padding=1), (1, 4, 12, 12), False),
]


@pytest.mark.parametrize("layer, pictures, faster", WINOGRAD)
def test_convolutions_of_3_x_3_take_winograds_algorithm_without_tensor_cores(layer, pictures, faster, arithmetic):
    operators = operators_of(layer, *pictures)
    device = replace(arithmetic, flops_per_s={"float32": 1e6})
    us = [microseconds(operators, one) for one in (arithmetic, device)]
    assert us[0] == pytest.approx(us[1] * (36 / 16 if faster else 1))
    assert us[0] == pytest.approx(sum(operator.flops for operator in operators)) and len(operators) > 2


TILES = [
    (64 * 64, 256, 1, 64 / 108),  # 32 x 2 tiles of 128 x 128: one round, with 44 multiprocessors idle
    (27 * 32 * 32, 512, 1, 864 / 864),  # eight full rounds
    (49, 512, 1, 49 / 64 * 32 / 108 / 4),  # 2 x 16 tiles of 32 x 32, which reach a quarter
    (16 * 256 * 256, 3, 1, 4096 / 4104 * 3 / 32 * 4 / 9),  # 3 columns of the 32 of the narrowest tile, 256 x 32
    (128 * 128, 1, 64, 4096 / 4104 / 32 * 4 / 9),  # each product has tiles of its own
]


@pytest.mark.parametrize("rows, columns, products, share", TILES)
def test_arithmetic_comes_in_tiles_and_rounds(rows, columns, products, share):
    assert ROOFLINES["A100"].busy_share(rows, columns, products) == pytest.approx(share)


def test_convolutions_on_tensor_cores_convert_their_pictures_and_their_result():
    operators = [one for one in operators_of(torch.nn.Conv2d(8, 16, 3, padding=1), 4, 8, 12, 12) if one.flops]
    names = [[part.name for part in parts_of(one, ROOFLINES["A100"])] for one in operators]
    to, back = "nchwToNhwcKernel", "nhwcToNchwKernel"
    assert names[0] == [to, to, "convolution", back, "add_bias"]
    of_input, of_weight = [to, to, "convolution grad_input", back], [to, to, "convolution grad_weight"]
    assert names[1] == [*of_input, *of_weight, "Memset (Device)", "convolution grad_bias"]
    converted, weight, _, result, _ = parts_of(operators[0], ROOFLINES["A100"])
    assert converted.bytes_moved == 2 * 4 * 4 * 8 * 144 and weight.bytes_moved == 2 * 4 * 16 * 8 * 9
    assert result.bytes_moved == 4 * 4 * 16 * 144, "it is written, and read from the cache"
    without = [part.name for one in operators for part in parts_of(one, ROOFLINES["V100"])]
    assert without[:3] == ["convolution", "add_bias", "convolution grad_input"] and to not in without


def test_the_step_of_nhwc_converts_nothing_and_its_kernels_move_what_they_read_and_write(tiny):
    operators = step_operators(tiny(), "nhwc", size=32)
    assert not [part.name for one in operators for part in parts_of(one) if "nchw" in part.name.lower()]
    assert max(one.bytes_moved for one in operators if one.name == "aten::clone") < 2 * 4 * 8 * 16 * 16, "of weights"
    for name, inputs, pictures in (("nhwc_norm", 1, [1, 2]), ("nhwc_norm_backward", 3, [3, 3])):
        one = next(one for one in operators if one.name == f"labkit::{name}" and len(one.inputs) == inputs)
        moved = [part.bytes_moved / 4 / torch.Size(one.inputs[0]).numel() for part in parts_of(one)]
        assert moved == pytest.approx(pictures, rel=0.1)


def test_a_weight_s_gradient_over_many_pixels_is_a_sum_of_parts_that_fill_the_gpu():
    small, large = (operators_of(torch.nn.Conv2d(64, 64, 3), 1, 64, side, side) for side in (16, 128))
    names = [[part.name for one in operators for part in parts_of(one)] for operators in (small, large)]
    assert ["splitKreduce_kernel" in some for some in names] == [False, True]


LAUNCHED = [
    (torch.float32, True, ["batch_norm"]),
    (torch.float32, False, ["batch_norm"]),
    (torch.float16, False, ["copy_", "batch_norm_inverse_deviation", "batch_norm_transform_input"]),
]


@pytest.mark.parametrize("dtype, training, launched", LAUNCHED)
def test_batch_norm_in_eval_mode_takes_no_statistics(dtype, training, launched):
    layer = torch.nn.BatchNorm2d(64).train(training)
    operators = operators_of(layer, 2, 64, 32, 32, dtype=dtype)
    (norm,) = (one for one in operators if "batch_norm" in one.name and "backward" not in one.name)
    parts = parts_of(norm)
    assert [part.name for part in parts] == launched
    pictures = 2 * 64 * 32 * 32 * 4  # 16 bits take as long as 32
    moved = sum(part.bytes_moved for part in parts)
    assert moved == pytest.approx(2 * pictures * (2.2 if training else 1), rel=0.01)


def test_under_autocast_batch_norm_is_cudnn_s_and_a_geforce_reaches_its_peak():
    layer, picture = torch.nn.BatchNorm2d(64).to("meta"), torch.empty(8, 64, 64, 64, device="meta")
    for dtype, slower in ((torch.float16, 1), (torch.bfloat16, 2)):  # cuDNN's kernels, and PyTorch's own
        given = picture.to(dtype).requires_grad_()
        norms = [one for one in program_operators(lambda one=given: layer(one).sum().backward()) if "norm" in one.name]
        moved = [sum(part.bytes_moved for part in parts_of(one)) / one.bytes_moved for one in norms]
        assert moved == pytest.approx([2.2 * slower, 5 / 3 * slower], rel=0.01), dtype
    device = replace(ROOFLINES["RTX 3090"], least_us=3.0)
    assert device.microseconds(71e6, 0.0, "float16") == pytest.approx(3 + 1)
    moved = 1e-6 * device.bytes_share * device.bytes_per_s  # in a microsecond
    assert device.microseconds(35.6e6, moved, "float32") == pytest.approx(3 + 1 / 0.77), "the longer of the two counts"
    assert device.microseconds(0.0, 2 * moved) == pytest.approx(3 + 2)


def test_depthwise_convolutions_need_no_conversion_and_no_tiles():
    layer = torch.nn.Conv2d(64, 64, 3, padding=1, groups=64, bias=False)
    operators = [one for one in operators_of(layer, 1, 64, 32, 32) if one.flops]
    parts = [part for one in operators for part in parts_of(one)]
    assert [part.name for part in parts] == ["convolution", "convolution grad_input", "convolution grad_weight"]
    forward, of_input, of_weight = (part.flops for part in parts)
    assert forward == of_input == of_weight / 4 == cost_model.DIRECT * operators[0].flops


def test_what_was_just_used_comes_from_the_cache():
    device = replace(ROOFLINES["A100"], least_us=0.0)
    small, large = (torch.empty(count, device="meta") for count in (1_000_000, 20_000_000))

    def run():
        small.add_(1)
        small.mul_(2)
        large.add_(1)
        small.mul_(2)
        large.mul_(2)

    us = [kernel.us for kernel in kernels(program_operators(run), device)]
    again, after_more, does_not_fit = us[1] / us[0], us[3] / us[1], us[4] / us[2]
    assert again == pytest.approx(0.5), "first it is read from the memory, at a third of the cache's rate"
    assert after_more == pytest.approx(2) and does_not_fit == pytest.approx(1)


def test_an_upload_takes_as_long_as_its_way_from_the_host():
    pictures = torch.empty(32, 3, 224, 224)
    (upload,) = program_operators(lambda: pictures.to("meta"))
    (kernel,) = kernels([upload], ROOFLINES["T4"])
    assert kernel.us == pytest.approx(2 + 1e6 * pictures.nbytes / (16e9 * 0.85)) and "HtoD" in kernel.name
