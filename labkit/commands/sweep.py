"""The command `labkit sweep`."""

import inspect
from pathlib import Path
from typing import Annotated, Any

import typer
from typer import Option

from labkit.errors import LabkitError, check_known
from labkit.recipes import FRUIT, FRUIT_ONE_GENERATOR


def sweep(
    context: typer.Context,
    storage: Annotated[
        Path, Option(help="The file that all workers share; its runs go into a folder of that name.")
    ] = Path("out", "sweep.journal"),
    trials: Annotated[int, Option(help="How many, of all workers together.", min=1)] = 24,
    data: Annotated[str, Option(help="'fruit': no other data have a truth to compare with.")] = "fruit",
    model: Annotated[str, Option(help="CycleGAN or DeviationGAN.")] = "CycleGAN",
    steps: Annotated[
        int | None,
        Option(help="Of each trial.", show_default=f"{FRUIT.steps}, with one generator {FRUIT_ONE_GENERATOR.steps}"),
    ] = None,
    size: Annotated[int, Option(help="Pixels, square.", min=16)] = FRUIT.size,
    seed: Annotated[int, Option(help="Determines first weights and batches of each trial.", min=0, max=2**32)] = 0,
    pruner: Annotated[
        str, Option(help="median stops a trial that is worse than the median of the others; none stops none.")
    ] = "median",
    workers: Annotated[int, Option(help="Processes that prepare batches; 0 paints pictures only once.", min=0)] = 0,
    device: Annotated[str, Option(help="auto, cpu or cuda.")] = "auto",
    save_minutes: Annotated[float, Option(help="Minutes between two checkpoints.", min=0)] = 1.0,
    stale_seconds: Annotated[
        float, Option(help="Without a sign of life, after which another worker takes a trial over.", min=1)
    ] = 60.0,
    show: Annotated[bool, Option("--show", help="Only print the table and write the page.")] = False,
) -> None:
    """Search settings: start this on as many machines as there are, with the same options.

    Give settings a range, LOW:HIGH or LOW:HIGH:log, or choices, A,B,C:

    labkit sweep --lr 1e-4:1e-3:log --ngf 8,16 --lambda-identity 0:1

    These are --lr, --batch-size, and every argument of labkit.CycleGAN or labkit.DeviationGAN: --generator, --ngf,
    --ndf, --norm, --pool-size, ... What is not searched is as in labkit train.
    """
    import labkit
    from labkit.sweeps.journal import run_folder
    from labkit.sweeps.sweep import table

    if show:
        found = table(storage)
    else:
        space = _space(context, model)
        pictures: Any = labkit.fruit(size=size, seed=seed) if data == "fruit" else data  # which `labkit.sweep` refuses
        try:
            found = labkit.sweep(
                pictures,
                space,
                trials,
                storage,
                model=model,
                steps=steps,
                seed=seed,
                pruner=pruner,
                workers=workers,
                device=device,
                save_minutes=save_minutes,
                stale_seconds=stale_seconds,
                say=typer.echo,
            )
        except KeyboardInterrupt as stopped:
            typer.echo(f"labkit: {str(stopped) or 'interrupted; run the same again to go on'}", err=True)
            raise typer.Exit(130) from None
    typer.echo(found.to_string(float_format="{:.4g}".format, na_rep=""))
    typer.echo(labkit.show.sweep_report(storage, run_folder(storage) / "sweep.html"))


def _space(context: typer.Context, model: str) -> dict[str, str]:
    """Ranges by setting, from the options that `sweep` does not have itself."""
    from labkit.sweeps.space import searchable

    known, space = searchable(model), {}
    given = iter(part for argument in context.args for part in argument.split("=", 1))
    for option in given:
        name = option.removeprefix("--").replace("-", "_")
        if not option.startswith("--"):
            raise LabkitError(f"{option!r}: an option is expected here, for example --lr 1e-4:1e-3:log.")
        check_known("option", name, [*known, *list(inspect.signature(sweep).parameters)[1:]])
        space[name] = next(given, "")
    return space
