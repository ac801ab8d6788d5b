"""The options of a model: the arguments of its constructor, with the help that its docstring has."""

from __future__ import annotations

import ast
import dataclasses
import functools
import inspect
import re
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer import Option

from labkit import recipes
from labkit.errors import LabkitError

if TYPE_CHECKING:  # --help should not wait for torch
    from labkit.measure.record import Batch
    from labkit.models.model import Model
    from labkit.models.step import Step

NETWORKS, LOSSES, PICTURES, PROCESSES = "Networks", "Losses", "Pictures", "Several processes, and speed"
IN_LOSSES = ("gan_mode", "lambda", "pool_size", "stage", "judged", "consistency")
SOURCES = {"CycleGAN": "cyclegan.py", "DeviationGAN": "deviation.py"}
NAMES = "with commas (bf16,batched); `labkit speedups` lists them"


def at_least(least: float, most: float = float("inf")) -> Callable[[Any], Any]:
    """Lets typer check a number; typer's own ranges would take a column of the help."""

    def check(value: Any) -> Any:
        if value is not None and not least <= value <= most:
            raise typer.BadParameter(f"{value} is not in the range from {least:g} to {most:g}.")
        return value

    return check


Device = Annotated[str, Option(help="auto, cpu or cuda.", rich_help_panel=PROCESSES)]
COMMON = {
    "size": (
        Annotated[int | None, Option(help="Pixels, square.", callback=at_least(16), rich_help_panel=PICTURES)],
        None,
    ),
    "batch_size": (
        Annotated[
            int, Option(help="Pictures of each domain in a step.", callback=at_least(1), rich_help_panel=PICTURES)
        ],
        1,
    ),
    "model": (
        Annotated[str, Option(help="CycleGAN, or DeviationGAN: one generator, A to B.", rich_help_panel=NETWORKS)],
        "CycleGAN",
    ),
    "device": (Device, "auto"),
}


@dataclasses.dataclass
class ModelOptions:
    """What the command line says of the model, its batches and its device; `given` are arguments of the model."""

    size: int | None = None
    batch_size: int = 1
    model: str = "CycleGAN"
    device: str = "auto"
    given: dict[str, Any] = dataclasses.field(default_factory=dict)

    def recipe(self, data: str, **chosen: Any) -> recipes.Recipe:
        """The settings for these data; a size, and what else was `chosen`, replaces the recipe's."""
        chosen = {name: value for name, value in {"size": self.size, **chosen}.items() if value is not None}
        return dataclasses.replace(recipes.find(data, self.model), **chosen)

    def make(self, recipe: recipes.Recipe, seed: int = 0) -> Model:
        """A new model, on its device; the seed determines its weights."""
        import torch

        from labkit.devices import pick_device
        from labkit.models import MODELS

        device = pick_device(self.device)
        torch.manual_seed(seed)
        kind = MODELS[recipe.kind]
        known = list(inspect.signature(kind).parameters)
        for name in self.given:
            if name not in known:
                options = ", ".join(map(as_option, known))
                raise LabkitError(f"{as_option(name)}: a {kind.kind} has no such argument. Its own are {options}.")
        arguments = {**recipe.model, **self.given}
        if "n_layers" in self.given and arguments.get("discriminator") != "n_layers":
            raise LabkitError("--n-layers counts the layers of --discriminator n_layers: give both.")
        return kind(**arguments).to(device)

    def noise(self, recipe: recipes.Recipe) -> Batch:
        """A batch of random pictures on the device, or a rank's part: a step takes as long with them as with others."""
        from labkit import ranks
        from labkit.devices import pick_device
        from labkit.measure.record import noise

        return noise(
            ranks.local_batch_size(self.batch_size), recipe.size, pick_device(self.device), seed=ranks.number()
        )

    def speedups(self, given: str, recipe: recipes.Recipe, folder: Path) -> tuple[list[str], list[str]]:
        """The names in a list with commas, and what to say of them; "auto" measures, or takes the choice of before."""
        import labkit

        said: list[str] = []
        names = names_in(given)
        if names == ["auto"]:
            names, said = labkit.measure.remembered(folder, lambda: self.make(recipe), self.noise(recipe))
        for name in {"compile", "compile_regions"} & set(names):
            takes = "can take minutes" if name == "compile" else "can take a minute"
            said.append(f"{name}: the networks are compiled in the first step, which {takes}")
        return names, said

    def step(self, model: Model, names: list[str], lr: float | None = None) -> Step:
        """A step with these speed-ups and, in one of several processes, the one that lets them share the batch."""
        import labkit
        from labkit.measure.autotune import shared

        return labkit.make_step(model, *dict.fromkeys([*names, *shared()]), lr=lr)


def names_in(speedups: str) -> list[str]:
    """The names in a list with commas."""
    return [name.strip() for name in speedups.split(",") if name.strip()]


@functools.cache
def constructor(kind: str) -> dict[str, tuple[Any, str]]:
    """The arguments of a model, each with its default and a line of help: read from its source, without torch."""
    tree = ast.parse((Path(__file__).parents[1] / "models" / SOURCES[kind]).read_text(encoding="utf-8"))
    model = next(node for node in tree.body if isinstance(node, ast.ClassDef) and node.name == kind)
    make = next(node for node in model.body if isinstance(node, ast.FunctionDef) and node.name == "__init__")
    described = (ast.get_docstring(model) or "").partition("Args:\n")[2].partition("\n\n")[0]
    found = {}
    for argument, default in zip(make.args.args[1:], make.args.defaults, strict=True):
        entry = re.search(rf"^    (?:\w+, )*{argument.arg}(?:, \w+)*: (.*(?:\n {{5,}}.*)*)", described, re.MULTILINE)
        text = re.split("[.;] ", re.sub(r"\s+", " ", entry[1]).replace('"', "").rstrip("."))[0] if entry else ""
        found[argument.arg] = ast.literal_eval(default), f"{text}."
    return found


def arguments() -> dict[str, tuple[Any, str]]:
    """The arguments of all models."""
    own = {name: (default, f"DeviationGAN: {text}") for name, (default, text) in constructor("DeviationGAN").items()}
    paper = {name: (default, text[0].upper() + text[1:]) for name, (default, text) in constructor("CycleGAN").items()}
    return paper | own | paper


def with_model(command: Callable[..., None]) -> Callable[..., None]:
    """Gives a command the options of a model in the place of its parameter `model`, a `ModelOptions`."""
    added = dict(COMMON)
    for name, (default, text) in arguments().items():
        kind = type(default)
        panel = LOSSES if name.startswith(IN_LOSSES) else NETWORKS
        least = 0 if name.startswith(("lambda", "pool")) else 1
        check = None if kind is str else at_least(least)
        option = Option(help=text, callback=check, rich_help_panel=panel)
        added[name] = (Annotated[kind | None, option], None)

    @functools.wraps(command)
    def run(**options: Any) -> None:
        mine = {name: options.pop(name) for name in added}
        given = {name: mine.pop(name) for name in arguments()}
        given = {name: value for name, value in given.items() if value is not None}
        command(model=ModelOptions(**mine, given=given), **options)

    keyword = inspect.Parameter.KEYWORD_ONLY
    parameters = [one for one in inspect.signature(command, eval_str=True).parameters.values() if one.name != "model"]
    parameters += [
        inspect.Parameter(name, keyword, default=default, annotation=kind) for name, (kind, default) in added.items()
    ]
    run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]  # read by typer
    run.__annotations__ = {one.name: one.annotation for one in parameters}
    return run


def as_option(name: str) -> str:
    """The option by which an argument is given on the command line."""
    return f"--{name.replace('_', '-')}"
