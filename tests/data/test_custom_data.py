"""Custom datasets: trained on, resumed, and refused with the reason."""

import random
from math import nan

import numpy as np
import pytest
import torch
from killing import same_weights
from PIL import Image
from torch.utils.data import DataLoader, Dataset

import labkit
from labkit.data.batches import UnpairedData
from labkit.data.custom_data import open_data
from labkit.errors import DataError
from labkit.training.checkpoints import load


class Shifted(Dataset):
    """Pairs of PIL pictures, each shifted at random by all three generators."""

    def __init__(self):
        numbers = np.random.default_rng(0)
        self.pictures = [numbers.integers(0, 256, (32, 32, 3), np.uint8) for _ in range(7)]

    def __len__(self):
        return len(self.pictures)

    def __getitem__(self, index):
        shift = int(torch.randint(9, ())) + random.randrange(9) + np.random.randint(9)
        return [Image.fromarray(np.roll(self.pictures[i], shift, axis=0)) for i in (index, index - 1)]


class Pairs(Dataset):
    """Items as the public reference's data sets have them."""

    def __init__(self, kind=dict):
        self.kind = kind

    def __len__(self):
        return 5

    def __getitem__(self, index):
        a, b = torch.rand(2, 3, 32, 32) * 2 - 1
        return (a, b) if self.kind is tuple else {"A": a, "B": b, "A_paths": "x"}


SETS = {"shifted": Shifted, "pairs": Pairs, "list": lambda: [Pairs(tuple)[k] for k in range(5)]}


@pytest.mark.parametrize("case", SETS)
def test_a_dataset_resumes_exactly(tiny, tmp_path, case):
    torch.manual_seed(3)
    data, options = SETS[case](), dict(batch_size=2)
    whole = labkit.fit(labkit.make_step(tiny()), data, 6, workers=1, **options)
    labkit.fit(labkit.make_step(tiny()), data, 3, checkpoint=tmp_path, sample_every=3, **options)
    torch.rand(5)
    resumed = labkit.fit(labkit.make_step(tiny()), data, 6, checkpoint=tmp_path, **options)
    assert same_weights(whole.model, resumed.model) and whole.losses == resumed.losses
    assert (tmp_path / "samples" / "000003.png").exists()


def test_pictures_are_given_in_any_way(tmp_path):
    noise = np.random.default_rng(0).integers(0, 256, (32, 32, 3), np.uint8)
    tensor, image = torch.from_numpy(noise).permute(2, 0, 1), Image.fromarray(noise)
    image.save(tmp_path / "a.png")
    ways = [str(tmp_path / "a.png"), tmp_path / "a.png", image, noise, tensor, labkit.to_float(tensor)]
    data = open_data([(ways[k], ways[k - 1]) for k in range(len(ways))], (3, 3))
    for half in (half for k in range(len(ways)) for half in data.pair(k, 0, 0)):
        assert torch.equal(half, labkit.to_float(tensor))
    grey = open_data([(image, noise[..., :1])], (1, 1)).pair(0, 0, 0)
    assert [half.shape for half in grey] == [(1, 32, 32)] * 2


@pytest.mark.parametrize("domain", [0, 1])
def test_one_domain_in_0_to_1_brings_a_warning(tiny, batch, domain):
    pictures = [*batch()]
    pictures[domain] = pictures[domain].abs()
    with pytest.warns(UserWarning, match=rf"below 0 in real_{'ab'[domain]}, .*2 \* pictures - 1"):
        labkit.make_step(tiny())(*pictures)


@pytest.mark.parametrize("bad", [nan, 255])
def test_a_run_stops_before_numbers_that_are_no_picture(tiny, tmp_path, bad):
    data = [tuple(torch.rand(2, 3, 32, 32) * 2 - 1) for _ in range(8)]
    unseen = UnpairedData("", 32, data, data, [], []).index(0, 7)
    data[unseen][1][0, 0, 0] = bad
    with pytest.raises(DataError, match=f"^item {unseen}, B: Tensor .* it holds {bad}, but floats run from -1"):
        labkit.fit(labkit.make_step(tiny()), data, 8, batch_size=2, workers=1, checkpoint=tmp_path)
    assert load(tmp_path)["done"] == 3


def zeros(*shape, dtype=torch.float32):
    return torch.zeros(3, *shape, dtype=dtype)


REFUSED = [
    (DataLoader(Pairs()), "Of a DataLoader give the dataset"),
    ([], "a dataset with len.., at least 1"),
    ("photos", "data, a str, .* Give labkit.folders"),
    ([zeros(32, 32)], r"too many values to unpack.*items by number: \(a, b\)"),
    ([{"A": zeros(32, 32)}], "KeyError: 'B'.*items by number"),
    ([(zeros(32, 32), zeros(32, 32) + 255)], "cannot be used .DataError: item 0, B: .* it holds 255"),
    ([(zeros(32, 32), zeros(32, 36))], r"item 0 has shapes \[\(3, 32, 32\), \(3, 32, 36\)\]"),
    ([(zeros(32, 32),) * 2] * 5 + [(zeros(36, 36),) * 2], "item 5 has .*, item 0 .*: resize or crop all to one size"),
]


@pytest.mark.parametrize(("data", "message"), REFUSED)
def test_what_cannot_be_used_is_refused(tiny, data, message):
    with pytest.raises(labkit.LabkitError, match=message):
        labkit.fit(labkit.make_step(tiny()), data, 6, workers=1)
