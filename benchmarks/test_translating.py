"""Translating and loading: pictures a second, against the public reference's way."""

import random

import numpy as np
import pytest
import torch
from PIL import Image
from torchvision import transforms

import labkit
from labkit.data.images import write_picture
from labkit.measure import alternate, ratio
from labkit.networks.generators import make_generator

NORMALISED = [transforms.ToTensor(), transforms.Normalize((0.5,) * 3, (0.5,) * 3)]


@pytest.fixture(scope="module")
def fruit():
    return labkit.fruit(n=200, size=256)


@pytest.mark.parametrize("kind", ["png", "jpg"])
def test_pictures_a_second_against_the_reference(tmp_path, fruit, report, kind):
    """resnet_9blocks as in the reference, but with ngf 16: with 64 nearly all time would be the convolutions'."""
    for i in range(8):
        write_picture(fruit.test_a[i], tmp_path / "in" / f"{i}.{kind}")
    network = make_generator("resnet_9blocks", 16).eval()
    (tmp_path / "reference").mkdir()

    def reference():
        """Its test.py: read, transform, translate, turn into an array and save, one picture after the other."""
        transform = transforms.Compose([transforms.Resize([256, 256], Image.BICUBIC), *NORMALISED])
        for path in sorted((tmp_path / "in").iterdir()):
            picture = transform(Image.open(path).convert("RGB"))[None]
            with torch.no_grad():
                translated = network(picture)
            array = translated[0].cpu().float().numpy()
            array = ((np.transpose(array, (1, 2, 0)) + 1) / 2.0 * 255.0).astype(np.uint8)
            Image.fromarray(array).save(tmp_path / "reference" / f"{path.stem}.png")

    def mine():
        labkit.translate(network, tmp_path / "in", tmp_path / "out", overwrite=True)

    seconds = alternate({"reference": reference, "labkit": mine, "reference again": reference}, rounds=7, warmup=1)
    faster = 1 / ratio(seconds["labkit"], seconds["reference"])
    noise = abs(ratio(seconds["reference again"], seconds["reference"]) - 1)
    report(times_the_reference=round(faster, 3), reference_over_itself=round(1 + noise, 3))
    assert faster >= 1 - noise


def test_training_pictures_a_second_against_the_reference(tmp_path, fruit, report):
    """Both without worker processes: opened from JPEG, resized and cropped at each access, against `labkit.folders`."""
    for domain in "AB":
        for i in range(100):
            write_picture(fruit.test_a[i % len(fruit.test_a)], tmp_path / f"train{domain}" / f"{i}.jpg")
    files = [sorted((tmp_path / f"train{domain}").iterdir()) for domain in "AB"]
    augment = [
        transforms.Resize([286, 286], Image.BICUBIC),
        transforms.RandomCrop(256),
        transforms.RandomHorizontalFlip(),
    ]
    transform = transforms.Compose([*augment, *NORMALISED])
    data = labkit.folders(tmp_path)

    def reference():
        for i in range(100):
            for path in (files[0][i], random.choice(files[1])):
                transform(Image.open(path).convert("RGB"))

    def mine():
        for _ in labkit.batches(data, 1, 0, 100):
            pass

    seconds = alternate({"reference": reference, "labkit": mine}, rounds=7, warmup=1)
    faster = 1 / ratio(seconds["labkit"], seconds["reference"])
    report(times_the_reference=round(faster, 2))
    assert faster >= 5
