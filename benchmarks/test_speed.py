"""The baseline costs no more than a plain loop, and data do not keep it waiting."""

import time

import pytest
import torch
from plain_loop import twin

import labkit
from labkit import recipes
from labkit.data import folders as folders_module
from labkit.data.images import write_picture
from labkit.measure import alternate, ratio
from labkit.measure.timing import spread

PLAIN = dict(generator="resnet_3blocks", ngf=16, ndf=16)


def test_baseline_against_a_plain_loop(report):
    torch.manual_seed(0)
    model = labkit.CycleGAN(**PLAIN)
    loop, step = twin(model, 2e-4, 50), labkit.make_step(model)
    again = twin(labkit.CycleGAN(**PLAIN), 2e-4, 50)
    real = [torch.rand(1, 3, 64, 64) * 2 - 1 for _ in range(2)]
    seconds = alternate(
        {"plain": lambda: loop(*real), "labkit": lambda: step(*real), "plain again": lambda: again(*real)}, rounds=60
    )
    spread = abs(ratio(seconds["plain again"], seconds["plain"]) - 1)
    slower = ratio(seconds["labkit"], seconds["plain"])
    report(labkit_over_plain=round(slower, 4), plain_over_itself=round(1 + spread, 4))
    assert slower <= 1.02 + spread


@pytest.fixture(scope="module")
def photographs(tmp_path_factory):
    """200 JPEG pictures of 256 pixels in either domain."""
    root = tmp_path_factory.mktemp("photographs")
    fruit = labkit.fruit(n=200, size=256)
    for domain, pictures in (("trainA", fruit.train_a), ("trainB", fruit.train_b)):
        (root / domain).mkdir()
        for i, picture in enumerate(pictures):
            write_picture(picture, root / domain / f"{i:04d}.jpg")
    return root


@pytest.mark.parametrize("kept", ["in_memory", "on_disk"])
def test_loader_against_a_step_of_15_ms(photographs, report, monkeypatch, kept):
    if kept == "on_disk":
        monkeypatch.setattr(folders_module, "IN_MEMORY", 0)
    stream = labkit.batches(labkit.folders(photographs), 1, 0, 420, workers=2)
    for _ in range(20):  # the workers start
        next(stream)
    waited, started = 0.0, time.perf_counter()
    while True:
        asked = time.perf_counter()
        batch = next(stream, None)
        waited += time.perf_counter() - asked
        if batch is None:
            break
        time.sleep(0.015)  # a GPU at work: the processor is free for the workers
    share = waited / (time.perf_counter() - started)
    report(share_of_time_waiting=round(share, 4))
    assert share <= 0.05


def test_the_baseline_against_itself_ten_times(report):
    model, again = (labkit.CycleGAN(**recipes.FRUIT.model) for _ in range(2))
    one, other = labkit.make_step(model), labkit.make_step(again)
    real = [torch.rand(1, 3, 64, 64) * 2 - 1 for _ in range(2)]
    ratios, spreads = [], []
    for _ in range(10):
        seconds = alternate({"A": lambda: one(*real), "A again": lambda: other(*real)}, rounds=50)
        ratios.append(round(ratio(seconds["A again"], seconds["A"]), 4))
        spreads.append(round(spread(seconds["A"]), 4))
    report(ratios=ratios, spreads=spreads)
    assert all(abs(ratio - 1) <= 0.02 for ratio in ratios)
