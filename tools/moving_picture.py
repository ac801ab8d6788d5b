"""Train on fruit and keep how apples turn into oranges: docs/apples_to_oranges.webp, which the README shows.

    python tools/moving_picture.py      # two to three minutes on one processor core

A frame shows the same test pictures after EVERY more steps, under the pictures themselves. The last frame stays longer.
"""

from pathlib import Path

import torch
from PIL import Image, ImageDraw, ImageFont
from torchvision.utils import make_grid

import labkit
from labkit.files import atomic_write
from labkit.models import run_network
from labkit.recipes import FRUIT
from labkit.training.run import Run

PICTURE = Path(__file__).resolve().parents[1] / "docs" / "apples_to_oranges.webp"
EVERY = 40  # steps from one frame to the next
PICTURES, SCALE, CAPTION = 6, 2, 26  # pictures in a row, pixels of the screen for one of a picture, pixels for the text
FRAME_MS, LAST_MS = 250, 3000


def frame(apples: torch.Tensor, translated: torch.Tensor, steps: int) -> Image.Image:
    """Apples above their translations after some steps, two of (N, 3, H, W) in [-1, 1], and a line that says so."""
    grid = make_grid(labkit.to_uint8(torch.cat([apples, translated])), nrow=len(apples), pad_value=255)
    rows = Image.fromarray(grid.permute(1, 2, 0).numpy())
    picture = Image.new("RGB", (rows.width * SCALE, rows.height * SCALE + CAPTION), "white")
    picture.paste(rows.resize((rows.width * SCALE, rows.height * SCALE), Image.Resampling.LANCZOS), (0, 0))
    words = f"apples, and their translations after {steps} training steps"
    ImageDraw.Draw(picture).text((4, rows.height * SCALE + 3), words, "black", ImageFont.load_default(16))
    return picture


def frames() -> list[Image.Image]:
    """The frames, from the untrained network to the trained one."""
    torch.manual_seed(0)
    data = labkit.fruit()
    model = labkit.CycleGAN(**FRUIT.model)
    apples = labkit.to_float(data.test_a[:PICTURES])
    translate = model.translator("AtoB")
    kept = [frame(apples, run_network(translate, apples), 0)]

    def keep(run: Run) -> None:
        kept.append(frame(apples, run_network(translate, apples), run.done))

    labkit.fit(labkit.make_step(model, lr=FRUIT.lr), data, FRUIT.steps, report_every=EVERY, callbacks=[keep])
    return kept


def main() -> None:
    """The command line."""
    first, *others = frames()
    durations = [FRAME_MS] * len(others) + [LAST_MS]
    with atomic_write(PICTURE) as file:
        options = dict(save_all=True, append_images=others, duration=durations, loop=0, quality=70, method=6)
        first.save(file, "webp", **options)
    print(f"{PICTURE}: {len(durations)} frames, {PICTURE.stat().st_size / 1e6:.2f} MB")


if __name__ == "__main__":
    main()
