"""Batch k is a function of (seed, k) alone, and examples are what the reference would draw."""

import pytest
import torch

from labkit.data.batches import UnpairedData, batches, to_float, to_uint8


@pytest.fixture
def data():
    """Five pictures of A and seven of B, each of one grey level, larger than the crop."""
    a, b = (
        torch.arange(n, dtype=torch.uint8).add(start).view(n, 1, 1, 1).expand(n, 3, 20, 24)
        for n, start in ((5, 0), (7, 100))
    )
    return UnpairedData("levels", 16, a, b, a, b)


def levels(pictures):
    return [int(picture[0, 0, 0]) for picture in to_uint8(pictures)]


@pytest.mark.parametrize("workers", [0, 2])
def test_starting_late_gives_the_same_batches_whoever_prepares_them(data, workers):
    whole = list(batches(data, 2, 0, 9, seed=4))
    late = list(batches(data, 2, 5, 9, seed=4, workers=workers))
    assert len(late) == 4
    torch.testing.assert_close(late, whole[5:], rtol=0, atol=0)


@pytest.mark.parametrize("n", [1, 2, 4])
def test_the_parts_of_the_ranks_are_the_batch(data, n):
    whole = list(batches(data, 4, 2, 5, seed=1))
    parts = [list(batches(data, 4, 2, 5, seed=1, rank=rank, ranks=n)) for rank in range(n)]
    joined = [tuple(map(torch.cat, zip(*batch, strict=True))) for batch in zip(*parts, strict=True)]
    torch.testing.assert_close(joined, whole, rtol=0, atol=0)


def test_another_seed_gives_other_batches(data):
    drawn = [levels(next(batches(data, 16, 0, 1, seed=seed))[1]) for seed in (0, 1)]
    assert drawn[0] != drawn[1]


def test_an_epoch_shows_every_picture_of_the_larger_domain_s_number(data):
    ((a, _),) = batches(data, data.epoch, 3, 4)
    assert sorted(level % 5 for level in levels(a)) == [0, 0, 1, 1, 2, 3, 4]  # seven places for five pictures


def test_each_epoch_has_an_order_of_its_own_and_b_is_drawn_at_random(data):
    drawn = [[levels(half) for half in batch] for batch in batches(data, data.epoch, 0, 8)]
    orders = {tuple(a) for a, _ in drawn}
    assert len(orders) == 8
    assert any(len(set(b)) < len(b) for _, b in drawn), "B is drawn with replacement"
    assert len({tuple(b) for _, b in drawn}) == 8


def test_crop_and_flip_move_about(data):
    ramp = torch.arange(24, dtype=torch.uint8).expand(1, 3, 20, 24)
    data = UnpairedData("ramp", 16, ramp, ramp, ramp, ramp)
    rows = [to_uint8(data.example(0, position)[0])[0, 0].tolist() for position in range(200)]
    assert {abs(row[0] - row[-1]) for row in rows} == {15}
    assert {min(row) for row in rows} == set(range(9))
    assert 60 < sum(row[0] > row[-1] for row in rows) < 140


def test_eight_bits_survive_the_way_to_floats_and_back():
    every = torch.arange(256, dtype=torch.uint8)
    assert torch.equal(to_uint8(to_float(every)), every)
    assert to_float(every).aminmax() == (-1, 1)
    assert to_uint8(torch.tensor([-3.0, 3.0])).tolist() == [0, 255]
