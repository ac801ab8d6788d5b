"""Datasets and loaders of one's own: trained on, resumed, and refused with the reason."""

import random

import numpy as np
import pytest
import torch
from PIL import Image
from torch.utils.data import DataLoader, Dataset, IterableDataset

import labkit


class Labelled(Dataset):
    """As torchvision's ImageFolder: items (PIL picture, label), each shifted at random by all three generators."""

    def __init__(self, seed, size=40):
        numbers = np.random.default_rng(seed)
        self.pictures = [numbers.integers(0, 256, (size, size + 3, 3), np.uint8) for _ in range(7)]

    def __len__(self):
        return len(self.pictures)

    def __getitem__(self, index):
        shift = int(torch.randint(9, ())) + random.randrange(9) + np.random.randint(9)
        return Image.fromarray(np.roll(self.pictures[index], shift, axis=0)), 0


class Pairs(Dataset):
    """Items as the public reference's data sets have them."""

    def __init__(self, scale=2.0, shift=-1.0, kind=dict):
        self.scale, self.shift, self.kind = scale, shift, kind

    def __len__(self):
        return 5

    def __getitem__(self, index):
        if index >= len(self):
            raise IndexError(index)
        a, b = (torch.rand(3, 32, 32) * self.scale + self.shift for _ in range(2))
        return (a, b) if self.kind is tuple else {"A": a, "B": b, "A_paths": "x"}


def equal(one, other):
    return all(torch.equal(a, b) for a, b in zip(one.state_dict().values(), other.state_dict().values(), strict=True))


SETS = {
    "two sets": lambda: labkit.unpaired(Labelled(0), Labelled(1), 32),
    "arrays": lambda: labkit.unpaired(Labelled(0).pictures, Labelled(1).pictures, 32, test_a=Labelled(2)),
    "pairs": lambda: Pairs(),
    "list": lambda: list(Pairs(kind=tuple)),
}


@pytest.mark.parametrize("case", SETS)
def test_a_dataset_resumes_exactly(tiny, tmp_path, case):
    torch.manual_seed(3)
    data, options = SETS[case](), dict(batch_size=2)
    whole = labkit.fit(labkit.make_step(tiny()), data, 6, workers=1, **options)
    labkit.fit(labkit.make_step(tiny()), data, 3, checkpoint=tmp_path, sample_every=3, **options)
    torch.rand(5)
    resumed = labkit.fit(labkit.make_step(tiny()), data, 6, checkpoint=tmp_path, **options)
    assert equal(whole.model, resumed.model) and whole.losses == resumed.losses
    assert (tmp_path / "samples" / "000003.png").exists()


@pytest.mark.parametrize("kind", [tuple, dict])
def test_a_loader_trains_and_says_that_its_order_starts_again(tiny, tmp_path, kind):
    loader = DataLoader(Pairs(kind=kind), batch_size=2, shuffle=True)
    run = labkit.fit(labkit.make_step(tiny()), loader, 4, checkpoint=tmp_path)
    assert run.done == 4 and (tmp_path / "samples" / "000004.png").exists()
    with pytest.warns(UserWarning, match="step 4: the order of a DataLoader starts again"):
        run = labkit.fit(labkit.make_step(tiny()), loader, 5, checkpoint=tmp_path)
    assert len(run.losses["G_A"]) == 5


def test_a_loader_of_bytes_trains_as_the_same_floats(tiny):
    pictures = torch.randint(256, (4, 2, 3, 32, 32), dtype=torch.uint8)
    runs = [
        labkit.fit(labkit.make_step(tiny()), DataLoader(own, batch_size=2), 3)
        for own in ([tuple(one) for one in pictures], [tuple(labkit.to_float(one)) for one in pictures])
    ]
    assert equal(runs[0].model, runs[1].model)


def test_batches_in_0_to_1_bring_a_warning(tiny, batch):
    with pytest.warns(UserWarning, match=r"no number in the first batch is below 0.*2 \* pictures - 1"):
        labkit.make_step(tiny())(*(half.abs() for half in batch()))


class Endless(IterableDataset):
    def __iter__(self):
        yield from ()


@pytest.mark.parametrize(
    ("data", "options", "message"),
    [
        (lambda: DataLoader(Pairs()), {"batch_size": 2}, "makes the batches"),
        (lambda: DataLoader(Pairs(), batch_size=9, drop_last=True), {}, "yields no batch"),
        (lambda: DataLoader(Endless()), {}, "yields no batch"),
        (lambda: DataLoader([1.0]), {}, r"a batch of a DataLoader is a Tensor; two parts"),
        (lambda: Labelled(0), {}, r"the picture of B in item 0 of a Labelled is 0; .*labkit.unpaired"),
        (lambda: [(torch.zeros(3, 32, 32), torch.zeros(3, 36, 36))], {}, "crop them to one size"),
        (lambda: 7, {}, "DataLoader, or a dataset whose items are"),
        (lambda: labkit.unpaired(list(torch.rand(2, 3, 32, 32)), Labelled(0), 32), {}, "leave ToTensor"),
        (lambda: labkit.unpaired(Labelled(0), Labelled(1), 64), {}, r"a\[0\] has 40x43 pixels, fewer than size=64"),
        (lambda: labkit.unpaired([], Labelled(1), 64), {}, "at least 1, and items by number"),
        (lambda: labkit.unpaired([torch.zeros(3, 32, 32, dtype=torch.int64)], Labelled(1), 32), {}, "is torch.int64"),
    ],
)
def test_what_cannot_be_used_is_refused(tiny, data, options, message):
    with pytest.raises(labkit.LabkitError, match=message):
        labkit.fit(labkit.make_step(tiny()), data(), 2, **options)
