"""A scene is a function of (seed, index) alone, looks alike at every size, and differs only where its fruit is."""

import pytest
import torch
from torch.nn.functional import avg_pool2d

import labkit
from labkit.data.batches import UnpairedData
from labkit.data.fruit import FIRST_OF_A, FIRST_OF_B, FIRST_OF_TEST, TEST_SCENES, FruitData, scenes

ONE_OF_EACH = [1, 2, 3, 6, 8]  # wall, two on wood, a green apple on leaves, two on a table, gingham


def difference(a, b):
    """Mean absolute difference of two sets of ``uint8`` pictures in grey levels, shape (N, 1, H, W)."""
    return (a.float() - b.float()).abs().mean(1, keepdim=True)


def test_the_data_are_unpaired_pictures_with_a_mask(fruit):
    assert isinstance(fruit, FruitData) and isinstance(fruit, UnpairedData)
    assert (fruit.name, fruit.size, fruit.epoch) == ("fruit", 32, 12)
    for pictures, n in ((fruit.train_a, 12), (fruit.train_b, 12), (fruit.test_a, 64), (fruit.test_b, 64)):
        assert len(pictures) == n and pictures[:].shape == (n, 3, 32, 32) and pictures[0].dtype == torch.uint8
        assert torch.equal(pictures[-1], pictures[n - 1])
        assert torch.equal(pictures[1:3], torch.stack(list(pictures)[1:3]))
        with pytest.raises(IndexError):
            pictures[n]
    assert fruit.test_mask.shape == (64, 1, 32, 32) and fruit.test_mask.dtype == torch.bool
    a, b = fruit.example(seed=0, position=0)
    assert a.shape == b.shape == (3, 32, 32)


def test_a_scene_depends_on_its_index_not_on_how_many_are_rendered_or_when(fruit):
    fewer = labkit.fruit(n=3, size=32, seed=0)
    assert torch.equal(fewer.train_a[:], fruit.train_a[:3]) and torch.equal(fewer.train_b[:], fruit.train_b[:3])
    assert torch.equal(fewer.test_a, fruit.test_a) and torch.equal(fewer.test_mask, fruit.test_mask)
    together, turned = scenes([7, 5, 2], size=32), scenes([2, 5, 7], size=32)
    alone = [scenes([index], size=32) for index in (7, 5, 2)]
    for i, part in enumerate(together):
        assert torch.equal(part, turned[i].flip(0))
        assert torch.equal(part, torch.cat([scene[i] for scene in alone]))


def test_another_seed_gives_other_scenes():
    apples, others = scenes(range(8), 32, seed=0)[0], scenes(range(8), 32, seed=1)[0]
    assert difference(apples, others).mean((1, 2, 3)).min() > 10


def test_a_scene_is_composed_alike_at_every_size():
    small, large = scenes(range(24), 64), scenes(range(24), 128)
    for at_64, at_128 in zip(small[:2], large[:2], strict=True):
        shrunk = avg_pool2d(at_128.float(), 2)
        assert difference(at_64, shrunk).mean((1, 2, 3)).max() < 5
        assert difference(at_64, shrunk.roll(1, dims=0)).mean((1, 2, 3)).min() > 10  # so 5 means something
    touched = avg_pool2d(large[2].float(), 2) > 0
    assert (touched & small[2]).sum() / (touched | small[2]).sum() > 0.95


@pytest.mark.parametrize("size", [16, 32, 77])
def test_the_two_fruits_differ_everywhere_inside_the_mask_and_nowhere_outside(size):
    apples, oranges, mask = scenes(range(FIRST_OF_TEST, FIRST_OF_TEST + 40), size)
    differs = (apples != oranges).any(1, keepdim=True)
    assert not (differs & ~mask).any()
    assert (differs & mask).sum() / mask.sum() > 0.97  # at the very edge, fruit may cover too little to show
    share = mask.float().mean((1, 2, 3))
    assert share.min() > 0.08 and share.max() < 0.6


def test_no_scene_is_in_two_sets(fruit):
    apples, oranges_of_a, _ = scenes(range(FIRST_OF_A, FIRST_OF_A + 12), size=32)
    assert torch.equal(apples, fruit.train_a[:])
    _, oranges_of_b, _ = scenes(range(FIRST_OF_B, FIRST_OF_B + 12), size=32)
    assert torch.equal(oranges_of_b, fruit.train_b[:])
    everything = torch.cat([oranges_of_a, oranges_of_b, fruit.test_b])
    assert len({picture.numpy().tobytes() for picture in everything}) == 12 + 12 + TEST_SCENES


def test_the_pictures_are_the_same_on_every_machine():
    """Mean colours, and the pixel in row 18, column 18, as they were when this was written."""
    apples, oranges, mask = scenes(ONE_OF_EACH, size=32)
    apple, orange = (pictures.float().mean((2, 3)).round() for pictures in (apples, oranges))
    for found, right in (
        (apple, [[135, 72, 119], [125, 95, 70], [95, 131, 63], [124, 99, 70], [127, 112, 106]]),
        (orange, [[143, 84, 114], [131, 102, 67], [112, 126, 56], [138, 116, 66], [138, 126, 96]]),
        (apples[..., 18, 18], [[111, 10, 19], [205, 149, 71], [77, 91, 26], [117, 18, 27], [173, 21, 47]]),
        (oranges[..., 18, 18], [[168, 98, 14], [245, 142, 34], [133, 82, 12], [177, 97, 13], [227, 121, 21]]),
    ):
        torch.testing.assert_close(found.float(), torch.tensor(right).float(), atol=1, rtol=0)
