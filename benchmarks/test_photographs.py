"""A stranger's folder: forty pictures as phones and programs write them; trained on, killed, resumed, translated."""

import os
import signal
import subprocess
import sys
import time

import numpy as np
import pytest
from PIL import Image

from labkit.data.fruit import scenes
from labkit.data.images import read_picture
from labkit.training import checkpoints

STEPS = 60
CAMERA = (3000, 4000)  # 12 megapixels


def photograph(index: int, domain: str, height: int, width: int) -> Image.Image:
    """A scene with the grain of a sensor."""
    apples, oranges, _ = scenes([index], size=max(height, width))
    pixels = (apples if domain == "A" else oranges)[0].permute(1, 2, 0).numpy()[:height, :width].astype(np.int16)
    grain = np.random.default_rng(index).normal(0, 4, pixels.shape)
    return Image.fromarray((pixels + grain).clip(0, 255).astype(np.uint8))


def save(picture: Image.Image, kind: str, path) -> None:
    """Writes a picture the way `kind` of program would."""
    if kind == "turned.jpg":
        exif = Image.Exif()
        exif[0x0112] = 6  # the camera was held upright: turn by 90 degrees to see it so
        picture.save(path.with_suffix(".JPG"), exif=exif)
    elif kind == "grey.jpg":
        picture.convert("L").save(path.with_suffix(".jpg"))
    elif kind == "print.jpeg":
        picture.convert("CMYK").save(path.with_suffix(".jpeg"))
    elif kind == "cutout.png":
        picture.putalpha(200)
        picture.save(path.with_suffix(".png"))
    elif kind == "palette.png":
        picture.quantize(64).save(path.with_suffix(".png"))
    elif kind == "deep.png":
        grey = np.asarray(picture.convert("L"), dtype=np.uint16) * 257
        Image.fromarray(grey).save(path.with_suffix(".PNG"))
    else:
        picture.save(path.with_suffix("." + kind.rpartition(".")[2]))


@pytest.fixture
def folder(tmp_path):
    """Forty pictures, one of them cut off in the middle, four of 12 megapixels, and what else lies about in folders."""
    kinds = ["plain.jpg", "turned.jpg", "grey.jpg", "print.jpeg", "cutout.png", "palette.png", "deep.png", "web.webp"]
    for domain in "AB":
        here = tmp_path / "photos" / f"train{domain}"
        here.mkdir(parents=True)
        for i in range(20):
            size = CAMERA if i in (0, 1) else (480 + 16 * i, 640)
            save(photograph(i, domain, *size), kinds[i % len(kinds)], here / f"IMG_{i:04d}")
        (here / ".DS_Store").write_bytes(b"\0")
    cut = tmp_path / "photos" / "trainA" / "IMG_0008.jpg"
    cut.write_bytes(cut.read_bytes()[:20_000])
    return tmp_path / "photos"


def run(*arguments, **options):
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-m", "labkit", *map(str, arguments)]
    return subprocess.Popen(command, env=environment, text=True, stdout=-1, stderr=-1, **options)


def test_forty_photographs(folder, tmp_path, report):
    training = ["train", "--data", folder, "--out", tmp_path / "run", "--size", 64, "--steps", STEPS, "--ngf", 8]
    training += ["--generator", "resnet_3blocks", "--save-minutes", 0, "--device", "cpu"]
    started = time.perf_counter()
    process = run(*training, start_new_session=True)
    while not (tmp_path / "run" / "checkpoint.pt").exists():
        assert process.poll() is None, process.communicate()[1]
        time.sleep(0.05)
    time.sleep(1)
    os.killpg(process.pid, signal.SIGKILL)
    process.communicate()
    killed_at = checkpoints.load(tmp_path / "run")["done"]

    process = run(*training)
    out, err = process.communicate()
    assert process.returncode == 0, err
    assert err.count("left out") == 1 and "IMG_0008.jpg" in err
    trained = time.perf_counter() - started

    started = time.perf_counter()
    process = run("translate", folder / "trainA", tmp_path / "translated", "--run", tmp_path / "run")
    out, err = process.communicate()
    assert process.returncode == 0, err
    written = sorted((tmp_path / "translated").iterdir())
    assert len(written) == 19 and "IMG_0008.jpg" in err
    assert read_picture(tmp_path / "translated" / "IMG_0000.png").shape == (3, *CAMERA)
    assert read_picture(tmp_path / "translated" / "IMG_0001.png").shape == (3, *reversed(CAMERA)), "turned upright"
    report(
        killed_at_step=killed_at,
        left_out=1,
        translated=len(written),
        seconds_to_train=round(trained),
        seconds_to_translate=round(time.perf_counter() - started),
    )
