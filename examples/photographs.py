"""Two questions about small trainings, answered on one core: checkerboards, and one generator on real photographs.

    OMP_NUM_THREADS=1 python examples/photographs.py fruit data/quality/checkerboards.json                # 11 minutes
    apt-get download mate-backgrounds lomiri-wallpapers-16.04                                             # Debian 12
    for each in *.deb; do dpkg -x $each x; done
    OMP_NUM_THREADS=1 python examples/photographs.py x/usr/share/backgrounds data/quality/photographs.json  # 15 minutes

Licences: GPL-2+ for the photographs in mate/nature, CC BY 4.0, CC BY-SA 4.0 and CC0 for the others.

**Pictures.** Each photograph is resized to 512 pixels along its shorter side and cut into squares of 64 pixels, every
32 pixels. A is cold: its mean blue is at least 12 of 255 above its mean red. B is warm: red at least 45 above blue, and
above green. Both have a deviation of grey of at least 8. At most 48 squares a photograph and domain. Every third
photograph, by name, is for the test alone, with half its squares.

**Measures**, fixed before the first training:

- `distance`: the Frechet distance of 12 features between the translations of testA and testB: mean and deviation of
  each channel, and the logarithm of the mean gradient of grey, across and down, at 1, 2 and 4 pixels. Each feature is
  divided by its deviation over testB. `distance_back` is that of B to A, of a model that has this way, too.
- `structure`: the cosine between the gradients of grey of the sources and of their translations, over all pixels of all
  pictures together. 1 keeps all edges, 0 has other ones.
- `checkerboard`: the power of grey, under a Hann window, at a period of 2 and of 4 pixels in either direction, over
  that 3 and 4 frequencies beside. The geometric mean over directions, periods and pictures, divided by testB's own.
- `fg`, `bg`, `changed`: `labkit.quality`, on the fruit.

Each run gets the same processor time, a number of steps times the median time of a step, all steps timed in turn. A
run is judged by the median of the last three of its eight looks. The goal on photographs: of the way from the distance
of untouched pictures of A to that of trainB at most a quarter is left, at two looks in a row, with a structure of at
least 0.5.

**Predictions**, committed with the measures. Fruit: transposed convolutions have a checkerboard above 2, resizing has
one below 1.2; quality is the same within the seeds; a step takes 1.2 times as long. Photographs: at equal time one
generator has no larger distance than CycleGAN (within the seeds), no smaller structure, and reaches the goal in half
the time. CycleGAN's checkerboard is above 2, that of one generator, whose transposed convolutions are 4x4 with stride
2, between 1.2 and 2, and that of CycleGAN with resizing below 1.2.

**Outcome.** Notebook 07 and docs/training.md have the numbers. Right: the checkerboards on the fruit and CycleGAN's on
photographs, the step, and one generator's distance and structure. Wrong: resizing had worse backgrounds on the fruit;
one generator's checkerboard was 33 to 42 on photographs, and that of resizing 1.3; the goal was reached by one
generator only, at the end of two of its three runs.
"""

import sys
import time
from functools import partial
from pathlib import Path
from statistics import median

import pandas
import torch
from torch import Tensor
from torch.nn import functional as F
from torchvision.utils import make_grid

import labkit
from labkit.data.batches import UnpairedData, to_float
from labkit.data.fruit import FruitData
from labkit.data.images import read_picture, write_picture
from labkit.measure.tables import write_table
from labkit.models.model import Model, run_network
from labkit.recipes import FRUIT, FRUIT_ONE_GENERATOR
from labkit.training.run import Run

SIZE, MOST, LOOKS = 64, 48, 8  # pixels, squares of a photograph and domain, looks at a run
DRAWN = ("analogpattern", "umang")  # no photographs


def cyclegan(generator: str = FRUIT.model["generator"]) -> labkit.Step:
    """A step of the fruit's CycleGAN, with the identity loss, perhaps with another generator."""
    return labkit.make_step(labkit.CycleGAN(**FRUIT.model | {"generator": generator}), lr=FRUIT.lr)


def one_generator() -> labkit.Step:
    """A step of the fruit's `DeviationGAN`."""
    return labkit.make_step(labkit.DeviationGAN(**FRUIT_ONE_GENERATOR.model))


MAKERS = {"CycleGAN": cyclegan, "one generator": one_generator}
MAKERS["CycleGAN, resize"] = partial(cyclegan, "resnet_3blocks_resize")


def photographs(folder: Path) -> UnpairedData:
    """Cold squares and warm ones of the photographs in this folder and in mate/nature."""
    files = sorted([*folder.glob("*_by_*.jpg"), *folder.glob("mate/nature/*.jpg")], key=lambda file: file.name)
    sets: dict[str, list[Tensor]] = {f"{use}_{domain}": [] for use in ("train", "test") for domain in "ab"}
    for number, file in enumerate(file for file in files if not file.name.startswith(DRAWN)):
        whole = read_picture(file)[None].float()
        small = F.interpolate(whole, scale_factor=512 / min(whole.shape[2:]), mode="bilinear", antialias=True)[0]
        squares = small.round().clamp(0, 255).unfold(1, SIZE, 32).unfold(2, SIZE, 32)
        squares = squares.permute(1, 2, 0, 3, 4).flatten(0, 1)
        red, green, blue = squares.mean((2, 3)).unbind(1)
        random = torch.Generator().manual_seed(number)
        for domain, wanted in {"a": blue - red >= 12, "b": (red - blue >= 45) & (red > green)}.items():
            found = squares[wanted & (squares.mean(1).std((1, 2)) >= 8)]
            found = found[torch.randperm(len(found), generator=random)[:MOST]]
            test = number % 3 == 0  # of which every second square is enough
            sets[f"{'test' if test else 'train'}_{domain}"].append(found[:: 1 + test].to(torch.uint8))
    return UnpairedData("photographs", SIZE, **{name: torch.cat(several) for name, several in sets.items()})


def features(pictures: Tensor) -> Tensor:
    """(N, 3, H, W) -> (N, 12), see above."""
    grey = pictures.mean(1, keepdim=True)
    scales = [F.avg_pool2d(grey, scale) for scale in (1, 2, 4)]
    gradients = [scale.diff(dim=dim).abs().mean((1, 2, 3)) for scale in scales for dim in (2, 3)]
    return torch.cat([pictures.mean((2, 3)), pictures.std((2, 3)), torch.stack(gradients, 1).add(1e-3).log()], 1)


def distance(pictures: Tensor, real: Tensor) -> float:
    """The Frechet distance of their features, in deviations of those of `real`."""
    deviation = features(real).std(0)
    ours, theirs = ((features(each) / deviation).double() for each in (pictures, real))
    covariances = torch.cov(ours.T), torch.cov(theirs.T)
    roots = torch.linalg.eigvals(covariances[0] @ covariances[1]).real.clamp(min=0).sqrt().sum()
    return float((ours.mean(0) - theirs.mean(0)).square().sum() + sum(map(torch.trace, covariances)) - 2 * roots)


def structure(sources: Tensor, pictures: Tensor) -> float:
    """The cosine between their gradients of grey."""
    edges = [torch.cat([each.mean(1).diff(dim=dim).flatten() for dim in (1, 2)]) for each in (sources, pictures)]
    return float(F.cosine_similarity(*edges, dim=0))


def checkerboard(pictures: Tensor) -> float:
    """The power at periods of 2 and 4 pixels over that beside it."""
    window = torch.hann_window(SIZE)
    power = torch.fft.fft2(pictures.mean(1) * window * window[:, None]).abs().square()
    lines = torch.stack([power.sum(1), power.sum(2)])  # by the frequency across, and down
    beside = [lines[..., [at - 4, at - 3, (at + 3) % SIZE, (at + 4) % SIZE]].mean(-1) for at in (SIZE // 4, SIZE // 2)]
    return float((lines[..., [SIZE // 4, SIZE // 2]] / torch.stack(beside, -1)).log().mean().exp())


def judged(model: Model, data: UnpairedData) -> tuple[dict[str, float], Tensor]:
    """All measures, and the translations of testA."""
    a, b = to_float(data.test_a), to_float(data.test_b)
    fakes = run_network(model.translator("AtoB"), a)
    row = {"checkerboard": checkerboard(fakes) / checkerboard(b)}
    if isinstance(data, FruitData):
        return row | labkit.quality(model, data), fakes
    row |= {"distance": distance(fakes, b), "structure": structure(a, fakes)}
    if "BtoA" in model.directions:
        row["distance_back"] = distance(run_network(model.translator("BtoA"), b), a)
    return row, fakes


def learn(data: UnpairedData, budget: float, runs: dict[str, int], target: Path) -> None:
    """Trains so many seeds of each name for `budget` seconds, and writes all looks and the last pictures."""
    a, b, train_b = (to_float(torch.stack([*each])) for each in (data.test_a, data.test_b, data.train_b))
    grey = (torch.zeros(1, 3, SIZE, SIZE),) * 2
    seconds = labkit.measure.alternate({name: partial(MAKERS[name](), *grey) for name in runs}, clock=time.process_time)
    sizes = {each: len(getattr(data, each)) for each in ("train_a", "train_b", "test_a", "test_b")}
    attrs = {"stamp": labkit.measure.stamp() | {"data": data.name, "size": SIZE, **sizes}, "step_seconds": seconds}
    attrs |= {"untouched": distance(a, b), "floor": distance(train_b, b)}
    rows: list[dict] = []
    shown = [data.test_a[:: len(data.test_a) // 10][:10]]
    for seed in range(max(runs.values())):
        for name in [name for name, seeds in runs.items() if seed < seeds]:

            def look(run: Run, name: str = name, seed: int = seed) -> None:
                row, fakes = judged(run.model, data)
                spent = run.done * median(seconds[name])
                rows.append({"name": name, "seed": seed, "steps": run.done, "seconds": spent, **row})
                if run.done >= run.steps:
                    shown.append(labkit.to_uint8(fakes[:: len(fakes) // 10][:10]))

            torch.manual_seed(seed)
            often = int(budget / LOOKS / median(seconds[name]))
            options: dict = dict(report_every=often, sample_every=LOOKS * often, callbacks=[look], seed=seed)
            labkit.fit(MAKERS[name](), data, LOOKS * often, **options)
            table = pandas.DataFrame(rows)
            table.attrs = attrs
            write_table(table, target)
            write_picture(make_grid(torch.cat(shown), nrow=10, padding=0), Path("out") / f"{target.stem}.png")


if __name__ == "__main__":
    torch.set_num_threads(1)
    source, target = sys.argv[1], Path(sys.argv[2])
    if source == "fruit":
        learn(labkit.fruit(), 80, {"CycleGAN": 3, "CycleGAN, resize": 3}, target)
    else:
        learn(photographs(Path(source)), 120, {"CycleGAN": 3, "one generator": 3, "CycleGAN, resize": 1}, target)
