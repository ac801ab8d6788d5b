"""The commands of the command line: functions with plain signatures, whose docstrings hold the help of each option."""

import contextlib
import dataclasses
import inspect
import os
import sys
from collections.abc import Callable, Iterator
from inspect import Parameter
from typing import Any

import typer

import labkit
import labtrace.cli
from labkit import recipes
from labkit.errors import LabkitError
from labkit.settings import SETTINGS, defaults_of
from labtrace.cli import as_option, described

LOSSES = ("gan_mode", "lambda", "pool_size", "stage", "judged", "consistency")  # arguments' names begin so


class Setup:
    """The model of a command, its batches and its device.

    Args:
        steps, lr: replace those of the recipe, if they are not None.

    Pictures:
        data: 'fruit', a public set such as horse2zebra, or a folder with trainA and trainB.
        size: Side of the square pictures, in pixels.
        batch_size: Pictures of each domain in a step.

    Networks:
        model: CycleGAN, or DeviationGAN, which has one generator, A to B.

    Several processes, and speed:
        device: auto, cpu or cuda.

    Attributes:
        recipe: for these data and this model, with what was given in its place.
        make_model: makes another model than the recipe's, if it is not None.

    Raises:
        LabkitError: there is no such model, it has no such argument, or `lr` cannot be read.
    """

    def __init__(
        self,
        steps: int | None = None,
        lr: str | None = None,
        *,
        data: str = "fruit",
        size: int | None = None,
        batch_size: int = 1,
        model: str = "CycleGAN",
        device: str = "auto",
        **arguments: Any,
    ):
        recipe = recipes.find(data, model)
        known = defaults_of(model)
        given = {name: value for name, value in arguments.items() if value is not None}
        if unknown := [as_option(name) for name in given if name not in known]:
            options = ", ".join(map(as_option, known))
            raise LabkitError(f"{unknown[0]}: a {model} has no such argument. Its own are {options}.")
        settings = recipe.model | given
        if "n_layers" in given and settings.get("discriminator") != "n_layers":
            raise LabkitError("--n-layers counts the layers of --discriminator n_layers: give both.")
        rates = None if lr is None else rates_in(lr)
        new: dict[str, Any] = {k: v for k, v in dict(size=size, steps=steps, lr=rates).items() if v is not None}
        self.recipe = dataclasses.replace(recipe, model=settings, **new)
        self.data, self.batch_size, self.device = data, batch_size, device
        self.make_model: Callable[[], labkit.models.Model] | None = None

    def make(self, seed: int = 0) -> "labkit.models.Model":
        """A new model, on its device. The seed determines its weights."""
        import torch

        torch.manual_seed(seed)
        kind = labkit.models.MODELS[self.recipe.kind]
        model = self.make_model() if self.make_model else kind(**self.recipe.model)
        return model.to(labkit.pick_device(self.device))

    def step(self, model: "labkit.models.Model", speedups: list[str]) -> "labkit.Step":
        """A step with these speed-ups and, in one of several processes, the one that lets them share the batch."""
        from labkit.measure.autotune import shared

        return labkit.make_step(model, *dict.fromkeys([*speedups, *shared()]), lr=self.recipe.lr)

    def noise(self) -> Any:
        """A batch of random pictures on the device, or a rank's part: a step takes as long with them as with others."""
        from labkit.measure import record

        n, device = labkit.ranks.local_batch_size(self.batch_size), labkit.pick_device(self.device)
        channels = [self.recipe.model.get(f"channels_{domain}", 3) for domain in "ab"]
        return record.noise(n, self.recipe.size, device, seed=labkit.ranks.number(), channels=channels)


def register(app: typer.Typer, command: Callable[..., None], **settings: Any) -> None:
    """As `labtrace.cli.register`. `**options` are those of `Setup`, `**model_options` all models', too."""
    parameters = dict(inspect.signature(command, eval_str=True).parameters)
    texts = described(Setup.__doc__) | described(command.__doc__)
    of_models = parameters.pop("model_options", None)
    if of_models or parameters.pop("options", None):
        common = inspect.signature(Setup, eval_str=True).parameters.values()
        parameters |= {each.name: each for each in common if each.kind == Parameter.KEYWORD_ONLY}
    if of_models:
        for name, (kind, text) in model_arguments().items():
            texts[name] = "Losses" if name.startswith(LOSSES) else "Networks", text
            parameters[name] = Parameter(name, Parameter.KEYWORD_ONLY, default=None, annotation=kind | None)
    labtrace.cli.add(app, command, parameters, texts, **settings)


def parser(command: Callable[..., None]) -> Any:
    """A command by itself: called with words of the command line and ``standalone_mode=False``, it gives its status."""
    app = typer.Typer(add_completion=False)
    register(app, command)
    return typer.main.get_command(app)


def model_arguments() -> dict[str, tuple[type, str]]:
    """The arguments of all models: the type of their values, and their help."""
    found: dict[str, tuple[type, str]] = {}
    for kind, settings in SETTINGS.items():
        for each in dataclasses.fields(settings):
            text = each.metadata["text"] if kind == "CycleGAN" else f"{kind}: {each.metadata['text']}"
            if each.name in found:  # both models have it, each with its own meaning
                text = f"{found[each.name][1]} {text}"
            found[each.name] = type(each.default), text
    return found


def names_in(speedups: str) -> list[str]:
    """The names in a list with commas."""
    return [name.strip() for name in speedups.split(",") if name.strip()]


def rates_in(lr: str) -> float | dict[str, float]:
    """A learning rate, or one for each player, by name: "generators=2e-4,discriminators=1e-4".

    Raises:
        LabkitError: it is neither.
    """
    try:
        if "=" not in lr:
            return float(lr)
        return {player: float(rate) for player, rate in (each.split("=") for each in names_in(lr))}
    except ValueError:
        raise LabkitError(
            f"--lr {lr}: give a number, such as 2e-4, or one for each player: generators=2e-4,discriminators=1e-4."
        ) from None


@contextlib.contextmanager
def printing(quiet: bool = False, as_json: bool = False) -> Iterator[None]:
    """Inside, --quiet hides all that is printed, and --json sends it to standard error.

    Ctrl-C ends the command with exit status 130, another signal that stopped a run with the status of that one.
    """
    try:
        with contextlib.ExitStack() as stack:
            if quiet or as_json:
                hidden = quiet or labkit.ranks.number() > 0
                to = stack.enter_context(open(os.devnull, "w")) if hidden else sys.stderr
                stack.enter_context(contextlib.redirect_stdout(to))
                stack.enter_context(contextlib.redirect_stderr(to))
            yield
    except KeyboardInterrupt as stopped:
        labkit.ranks.print_once(f"{str(stopped) or 'interrupted; run the same again to continue from what was saved'}")
        raise typer.Exit(getattr(stopped, "status", 130)) from None
