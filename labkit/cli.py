"""The command line: train a model on pictures, translate pictures with it, and measure."""

from __future__ import annotations

import difflib
import importlib.util
import sys
import time
import warnings
from pathlib import Path
from typing import Annotated

import typer

from labkit import recipes
from labkit.errors import LabkitError, check_known
from labkit.files import check_folder

# What --help says of the defaults; what a recipe leaves open is the model's own, as in the paper.
FRUIT, PHOTOGRAPHS = recipes.FRUIT, recipes.PHOTOGRAPHS
SIZES = f"fruit {FRUIT.size}, others {PHOTOGRAPHS.size}"
STEPS = f"fruit {FRUIT.steps}, with one generator {recipes.FRUIT_ONE_GENERATOR.steps}; others {PHOTOGRAPHS.steps}"
RATES = f"fruit, with CycleGAN, {FRUIT.lr}; others the model's own"
DECAYS = f"fruit none, others {PHOTOGRAPHS.decay:.0%} of the steps"
NETWORKS = {name: f"fruit {value}, others the paper's" for name, value in FRUIT.model.items()}

app = typer.Typer(no_args_is_help=True, add_completion=False, pretty_exceptions_enable=False, help=__doc__)

Device = Annotated[str, typer.Option(help="auto, cpu or cuda.")]
BatchSize = Annotated[int, typer.Option(help="Pictures of each domain in a step.", min=1)]
Size = Annotated[int | None, typer.Option(help="Pixels, square.", min=16, show_default=SIZES)]
ModelKind = Annotated[str, typer.Option("--model", help="CycleGAN, or DeviationGAN: one generator, A to B only.")]
Generator = Annotated[
    str | None,
    typer.Option(
        help="resnet_9blocks, _6blocks or _3blocks, unet_256 or unet_128, or a light one, such as "
        "resnet_9blocks_narrow.",
        show_default=NETWORKS["generator"],
    ),
]
Ngf = Annotated[int | None, typer.Option(help="Filters in its first layer.", min=1, show_default=NETWORKS["ngf"])]
Ndf = Annotated[int | None, typer.Option(help="The same of the discriminators.", min=1, show_default=NETWORKS["ndf"])]
Norm = Annotated[
    str | None,
    typer.Option(help="instance, batch, none, instance_blocks.", show_default=NETWORKS["norm"]),
]
NAMES = "with commas (bf16,batched); `labkit speedups` lists them"
SpeedUps = Annotated[str, typer.Option(help=f"Names, {NAMES}.")]


@app.command()
def train(
    out: Annotated[Path, typer.Option(help="Folder for checkpoint and sample pictures; goes on if it holds a run.")],
    data: Annotated[
        str, typer.Option(help="'fruit', a public set ('horse2zebra'), or a folder with trainA and trainB.")
    ] = "fruit",
    steps: Annotated[int | None, typer.Option(help="Steps to train up to.", show_default=STEPS)] = None,
    batch_size: BatchSize = 1,
    size: Size = None,
    lr: Annotated[float | None, typer.Option(help="Adam's learning rate.", show_default=RATES)] = None,
    decay_steps: Annotated[
        int | None,
        typer.Option(
            help="Last steps, over which the learning rate falls to 0.",
            min=0,
            show_default=DECAYS,
        ),
    ] = None,
    model_kind: ModelKind = "CycleGAN",
    generator: Generator = None,
    ngf: Ngf = None,
    ndf: Ndf = None,
    norm: Norm = None,
    speedups: Annotated[
        str, typer.Option(help=f"Names, {NAMES}; or auto alone: measures for minutes, and takes what helps.")
    ] = "",
    device: Device = "auto",
    workers: Annotated[int, typer.Option(help="Processes that prepare batches.", min=0)] = 2,
    seed: Annotated[int, typer.Option(help="Settles first weights and batches.", min=0, max=2**32)] = 0,
    save_minutes: Annotated[float, typer.Option(help="Minutes between two checkpoints.", min=0)] = 5.0,
) -> None:
    """Train a model; run the same again to go on after a stop."""
    import labkit

    recipe = recipes.find(data, model_kind)
    side = recipe.size if size is None else size
    pictures = _data(data, side, seed)

    def make_model():  # noqa: ANN202 - as for _data
        return _model(recipe, device, seed, generator=generator, ngf=ngf, ndf=ndf, norm=norm)

    names = _names(speedups)
    if names == ["auto"]:
        check_folder(out)
        names, said = labkit.choose(make_model, _noise(batch_size, side, device))
        typer.echo("\n".join([*said, f"auto: {', '.join(names) or 'the baseline'}"]))
    model = make_model()
    step = labkit.make_step(model, *names, lr=recipe.lr if lr is None else lr)
    steps = recipe.steps if steps is None else steps
    decay_steps = round(recipe.decay * steps) if decay_steps is None else decay_steps
    started = time.process_time()
    try:
        run = labkit.fit(
            step,
            pictures,
            steps,
            batch_size,
            checkpoint=out,
            seed=seed,
            workers=workers,
            schedule=labkit.linear_schedule(steps - decay_steps, decay_steps) if decay_steps else None,
            save_minutes=save_minutes,
        )
    except KeyboardInterrupt as stopped:
        typer.echo(f"labkit: {str(stopped) or 'broken off: what was not saved is lost'}", err=True)
        raise typer.Exit(130) from None
    more = f", which is more than the {steps} asked for" * (run.done > steps)
    typer.echo(f"{out}: {run.done} steps done{more}, {time.process_time() - started:.0f} CPU seconds in this process")
    if data == "fruit":
        scores = labkit.quality(model, pictures)
        typer.echo(f"fg {scores['fg']:.2f} %, bg {scores['bg']:.2f} % (lower is better)")


@app.command()
def translate(
    source: Annotated[Path, typer.Argument(help="A picture, or a folder of pictures.")],
    target: Annotated[Path, typer.Argument(help="The picture, or the folder, to write.")],
    run: Annotated[
        Path, typer.Option(help="Folder of a run, its checkpoint, or a generator of the public reference (.pth).")
    ],
    direction: Annotated[str, typer.Option(help="AtoB or BtoA.")] = "AtoB",
    device: Device = "auto",
) -> None:
    """Translate a picture or a folder with a trained model."""
    import labkit
    from labkit.devices import pick_device

    load = labkit.load_generator if run.suffix == ".pth" else labkit.load_model
    for written in labkit.translate(load(run, pick_device(device)), source, target, direction):
        typer.echo(written)


@app.command()
def profile(
    out: Annotated[Path, typer.Option(help="The trace to write, .json or .json.gz.")],
    data: Annotated[str, typer.Option(help="Whose networks and size: 'fruit' or 'photographs'.")] = "fruit",
    steps: Annotated[int, typer.Option(help="Steps to record, after three that warm up.")] = 20,
    batch_size: BatchSize = 1,
    size: Size = None,
    model_kind: ModelKind = "CycleGAN",
    generator: Generator = None,
    ngf: Ngf = None,
    ndf: Ndf = None,
    norm: Norm = None,
    speedups: SpeedUps = "",
    device: Device = "auto",
) -> None:
    """Record training steps on noise: print where the time goes by operator, and write the trace."""
    import labkit
    from labkit.measure import record as recording

    check_known("data", data, ("fruit", "photographs"))
    recipe = recipes.find(data, model_kind)
    model = _model(recipe, device, seed=0, generator=generator, ngf=ngf, ndf=ndf, norm=norm)
    recording.check_writable(out)
    step = labkit.make_step(model, *_names(speedups))
    batch = _noise(batch_size, recipe.size if size is None else size, device)
    profiler = recording.profiled(step, batch, steps)
    own_time = "self_device_time_total" if batch[0].is_cuda else "self_cpu_time_total"
    typer.echo(profiler.key_averages().table(sort_by=own_time, row_limit=20))
    typer.echo(f"{recording.export(profiler, out)}: {steps} steps; open it in ui.perfetto.dev or with HTA")


@app.command()
def speedups() -> None:
    """List the speed-ups: what each changes, what it should move, and what it needs."""
    import labkit

    for name, row in labkit.speedups().iterrows():
        typer.echo(f"{name}: {row['changes']}\n    moves {row['moves']}; needs {row['needs']}")


@app.command()
def compare(
    stacks: Annotated[
        list[str] | None,
        typer.Argument(
            help="Each a speed-up, or several with commas: bf16 bf16,batched.",
            show_default="each by itself that can save time here",
        ),
    ] = None,
    out: Annotated[Path, typer.Option(help="Folder for compare.json and compare.html; replaces them.")] = Path(
        "out", "compare"
    ),
    data: Annotated[str, typer.Option(help="Whose networks and size: 'fruit' or 'photographs'.")] = "fruit",
    batch_size: BatchSize = 1,
    size: Size = None,
    model_kind: ModelKind = "CycleGAN",
    generator: Generator = None,
    ngf: Ngf = None,
    ndf: Ndf = None,
    norm: Norm = None,
    rounds: Annotated[int, typer.Option(help="Measurements of each, in turn.")] = 10,
    device: Device = "auto",
) -> None:
    """Time training steps in turn, on noise, and say whether they compute the same as the baseline."""
    import labkit
    from labkit.measure.autotune import candidates
    from labkit.measure.tables import save

    check_known("data", data, ("fruit", "photographs"))
    recipe = recipes.find(data, model_kind)
    check_folder(out)

    def make_model():  # noqa: ANN202 - as for _data
        return _model(recipe, device, seed=0, generator=generator, ngf=ngf, ndf=ndf, norm=norm)

    def maker(*names: str):  # noqa: ANN202 - as for _data
        return lambda: labkit.make_step(make_model(), *names)

    said = []
    if not stacks:
        stacks, said = candidates(make_model)
    makers = {"baseline": maker(), **{stack: maker(*_names(stack)) for stack in stacks}}
    batch = _noise(batch_size, recipe.size if size is None else size, device)
    table = labkit.compare(makers, batch, rounds)
    said += [f"{name}: {row['verdict']}, {row['why']}" for name, row in table.iterrows()]
    typer.echo("\n".join(said))
    typer.echo(save(table, out / "compare.json"))
    if importlib.util.find_spec("plotly"):
        typer.echo(labkit.show.comparison_report(table, out / "compare.html"))


@app.command()
def survey(
    out: Annotated[Path, typer.Option(help="Folder for results.json and traces; results in it are continued.")],
    minutes: Annotated[float, typer.Option(help="No measurement is begun that would end later.")] = 8.5,
    earlier: Annotated[Path | None, typer.Option(help="results.json of an earlier call, to go on from.")] = None,
    device: Device = "auto",
) -> None:
    """Measure everything worth recording on this GPU, in the minutes there are; on a CPU, rehearse it."""
    from labkit.measure.survey import survey

    typer.echo(survey(out, minutes, earlier, device))


def _noise(batch_size: int, side: int, device: str):  # noqa: ANN202 - as for _data
    """A batch of random pictures on a device: what is in them costs nothing."""
    import torch

    from labkit.devices import pick_device

    where = pick_device(device)
    return tuple(torch.rand(batch_size, 3, side, side, device=where) * 2 - 1 for _ in range(2))


def _names(speedups: str) -> list[str]:
    return [name.strip() for name in speedups.split(",") if name.strip()]


def _model(recipe: recipes.Recipe, device: str, seed: int, **chosen: str | int | None):  # noqa: ANN202 - as for _data
    """The recipe's networks on a device, with what was chosen otherwise."""
    import torch

    from labkit.devices import pick_device
    from labkit.models import MODELS

    where = pick_device(device)
    torch.manual_seed(seed)
    torch.backends.cudnn.benchmark = True  # pictures keep their size, so cuDNN may look for its fastest kernels
    chosen = {name: value for name, value in chosen.items() if value is not None}
    if recipe.kind != "CycleGAN" and chosen.keys() - {"ngf", "ndf"}:
        raise LabkitError(f"--generator and --norm choose among CycleGAN's networks; a {recipe.kind} has neither.")
    return MODELS[recipe.kind](**{**recipe.model, **chosen}).to(where)


def _data(name: str, size: int, seed: int):  # noqa: ANN202 - importing the type would import torch for --help
    import labkit
    from labkit.data.download import PUBLIC_SETS

    if name == "fruit":
        return labkit.fruit(size=size, seed=seed)
    if name in PUBLIC_SETS and not Path(name).is_dir():
        return labkit.folders(labkit.download(name), size=size)
    close = difflib.get_close_matches(name, ["fruit", *PUBLIC_SETS], n=1)
    if close and not Path(name).exists():
        raise LabkitError(f"--data {name}: there is no such folder or set. Did you mean {close[0]!r}?")
    return labkit.folders(name, size=size)


def main() -> None:
    """Runs the command line; what the user can mend is said in one line, without a traceback."""
    warnings.showwarning = lambda message, *_, **__: print(f"labkit: {message}", file=sys.stderr)
    try:
        app()
    except (LabkitError, OSError) as error:  # OSError: its text names the file and what is wrong with it
        print(f"labkit: {error}", file=sys.stderr)
        sys.exit(1)
