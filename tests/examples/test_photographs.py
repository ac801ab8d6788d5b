"""The measures of the study on photographs see what was planted, and nothing where nothing was."""

import math

import pytest
import torch

from examples.photographs import checkerboard, distance, structure


def noise():
    return torch.rand(40, 3, 64, 64, generator=torch.Generator().manual_seed(0))


@pytest.mark.parametrize(("period", "seen"), [(2, True), (4, True), (3, False), (8, False)])
def test_a_checkerboard_is_a_wave_of_two_or_four_pixels(period, seen):
    wave = 0.5 * torch.cos(2 * math.pi * torch.arange(64) / period)
    for planted in (wave, wave[:, None], wave * wave[:, None]):
        times = checkerboard(noise() + planted) / checkerboard(noise())
        assert times > 1.5 if seen else times < 1.01


def test_the_distance_is_0_to_itself_and_grows_with_a_shift_in_colour():
    same, near, far = (distance(noise() + torch.tensor([by, 0, 0])[:, None, None], noise()) for by in (0, 0.1, 0.4))
    assert abs(same) < 1e-6 < near < far


def test_structure_is_1_for_the_same_edges_in_other_colours_and_0_for_others():
    assert structure(noise(), 0.3 * noise() + 0.5) == pytest.approx(1, abs=1e-3)
    assert abs(structure(noise(), noise().flip(0))) < 0.01
