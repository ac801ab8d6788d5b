"""Translating: a photograph of 12 megapixels in strips, and pictures a second, against the public reference's way."""

import random
import time

import numpy as np
import pytest
import torch
from PIL import Image
from test_photographs import CAMERA, photograph
from torchvision import transforms

import labkit
from labkit.data.images import write_picture
from labkit.measure import alternate, ratio
from labkit.model import run_network
from labkit.networks.generators import make_generator
from labkit.training import large
from labkit.training.strips import in_strips

NORMALISED = [transforms.ToTensor(), transforms.Normalize((0.5,) * 3, (0.5,) * 3)]


@pytest.fixture(scope="module")
def fruit():
    return labkit.fruit(n=200, size=256)


def test_twelve_megapixels_in_strips_against_whole(report):
    """A generator of the reference's architecture, trained for a minute; the errors are in levels of 255."""
    torch.manual_seed(0)
    model = labkit.CycleGAN(generator="resnet_9blocks", ngf=16, ndf=16)
    labkit.fit(labkit.make_step(model), labkit.fruit(size=64), 200)
    network = model.translator()
    picture = labkit.to_float(torch.from_numpy(np.array(photograph(0, "A", *CAMERA))).permute(2, 0, 1))[None]
    strips = 12
    started = time.perf_counter()
    whole = run_network(network, picture)
    seconds = {"whole": time.perf_counter() - started}
    started = time.perf_counter()
    parts = in_strips(network, picture, strips)
    seconds["strips"] = time.perf_counter() - started
    apart = 127.5 * (parts - whole).abs().mean((0, 1, 3))  # for each row
    near = torch.zeros(CAMERA[0], dtype=torch.bool)
    for seam in range(1, strips):
        near[CAMERA[0] * seam // strips - 8 : CAMERA[0] * seam // strips + 8] = True
    tiles = 127.5 * (large.in_tiles(network, picture) - whole).abs().mean()
    report(
        mean=apart.mean().item(),
        largest=127.5 * (parts - whole).abs().max().item(),
        near_seams=apart[near].mean().item(),
        elsewhere=apart[~near].mean().item(),
        fading_tiles_mean=tiles.item(),
        contrast=127.5 * whole.std().item(),
        **{f"seconds_{name}": round(taken, 1) for name, taken in seconds.items()},
    )
    assert apart.mean() <= 0.01 and apart[near].mean() <= apart[~near].mean() + 0.001


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
