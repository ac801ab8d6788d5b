"""Options that belong together, and what they make: the model, and how several processes share its training."""

import dataclasses
import functools
import inspect
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from typer import Option

from labkit import recipes
from labkit.errors import LabkitError

if TYPE_CHECKING:  # --help should not wait for torch
    from labkit.data.batches import UnpairedData
    from labkit.measure.record import Batch
    from labkit.model import Model
    from labkit.step import Step

# The defaults, as --help states them. A setting that a recipe leaves open has the model's default, as in the paper.
FRUIT, PHOTOGRAPHS = recipes.FRUIT, recipes.PHOTOGRAPHS
SIZES = f"fruit {FRUIT.size}, others {PHOTOGRAPHS.size}"
STEPS = f"fruit {FRUIT.steps}, with one generator {recipes.FRUIT_ONE_GENERATOR.steps}; others {PHOTOGRAPHS.steps}"
NETWORKS = {name: f"fruit {value}, others the paper's" for name, value in FRUIT.model.items()}
GENERATORS = "resnet_9blocks, _6blocks or _3blocks, unet_256 or unet_128, or a light one: resnet_9blocks_narrow, ..."
BLOCKS = f"fruit {recipes.FRUIT_ONE_GENERATOR.model['blocks']}, others 9"
NAMES = "with commas (bf16,batched); `labkit speedups` lists them"

Own = functools.partial(Option, rich_help_panel="Options of --model DeviationGAN")
Device = Annotated[str, Option(help="auto, cpu or cuda.")]


@dataclasses.dataclass
class Choice:
    """The options that several commands share: the model, its device and its batches."""

    batch_size: Annotated[int, Option(help="Pictures of each domain in a step.", min=1)] = 1
    size: Annotated[int | None, Option(help="Pixels, square.", min=16, show_default=SIZES)] = None
    model_kind: Annotated[str, Option("--model", help="CycleGAN, or DeviationGAN: one generator, A to B.")] = "CycleGAN"
    generator: Annotated[str | None, Option(help=GENERATORS, show_default=NETWORKS["generator"])] = None
    ngf: Annotated[int | None, Option(help="Filters in its first layer.", min=1, show_default=NETWORKS["ngf"])] = None
    ndf: Annotated[int | None, Option(help="The discriminators' filters.", min=1, show_default=NETWORKS["ndf"])] = None
    norm: Annotated[
        str | None, Option(help="instance, batch, none, instance_blocks.", show_default=NETWORKS["norm"])
    ] = None
    discriminator: Annotated[
        str | None, Option(help="basic, n_layers or pixel.", show_default=NETWORKS["discriminator"])
    ] = None
    n_layers: Annotated[
        int | None,
        Option(help="Strided layers of the discriminator n_layers.", min=1, show_default=NETWORKS["n_layers"]),
    ] = None
    gan_mode: Annotated[str | None, Option(help="lsgan, vanilla, wgangp.", show_default="lsgan")] = None
    lambda_a: Annotated[float | None, Option(help="Weight of the cycle A-B-A.", min=0, show_default="10.0")] = None
    lambda_b: Annotated[float | None, Option(help="Weight of the cycle B-A-B.", min=0, show_default="10.0")] = None
    lambda_identity: Annotated[
        float | None,
        Option(help="Weight of the identity loss relative to these.", min=0, show_default="0.5, one generator 10.0"),
    ] = None
    pool_size: Annotated[
        int | None, Option(help="Earlier fakes that the discriminators are reminded of.", min=0, show_default="50")
    ] = None
    blocks: Annotated[int | None, Own(help="Residual blocks.", min=1, show_default=BLOCKS)] = None
    translators: Annotated[int | None, Own(help="1, A to B, or 2.", min=1, max=2, show_default="1")] = None
    autoencoders: Annotated[int | None, Own(help="1 for both domains, or 2.", min=1, max=2, show_default="1")] = None
    stage: Annotated[str | None, Own(help="Who learns: joint, autoencoder, translation.", show_default="joint")] = None
    judged: Annotated[str | None, Own(help="By the discriminator: codes, pictures.", show_default="codes")] = None
    consistency: Annotated[
        str | None, Own(help="deviation_source, deviation_both or cycle.", show_default="deviation_source")
    ] = None
    lambda_deviation: Annotated[float | None, Own(help="Weight of the deviation.", min=0, show_default="1.0")] = None
    lambda_cycle: Annotated[float | None, Own(help="Weight of that cycle.", min=0, show_default="10.0")] = None
    device: Device = "auto"

    def recipe(self, data: str, **chosen: Any) -> recipes.Recipe:
        """The settings for these data; a size, and what else was `chosen`, replaces the recipe's."""
        chosen = {name: value for name, value in {"size": self.size, **chosen}.items() if value is not None}
        return dataclasses.replace(recipes.find(data, self.model_kind), **chosen)

    def model(self, recipe: recipes.Recipe, seed: int = 0) -> "Model":
        """A new model, on its device; the seed determines its weights."""
        import torch

        from labkit.devices import pick_device
        from labkit.models import MODELS

        where = pick_device(self.device)
        torch.manual_seed(seed)
        torch.backends.cudnn.benchmark = True  # pictures keep their size, so cuDNN may search for its fastest kernels
        arguments = {**recipe.model, **self.arguments(MODELS[recipe.kind])}
        if self.n_layers is not None and arguments.get("discriminator") != "n_layers":
            raise LabkitError("--n-layers counts the layers of --discriminator n_layers: give both.")
        return MODELS[recipe.kind](**arguments).to(where)

    def arguments(self, kind: "type[Model]") -> dict[str, Any]:
        """The arguments that were given for a model of this kind.

        Raises:
            LabkitError: one of them does not belong to this kind.
        """
        own = inspect.signature(kind).parameters
        others = ("batch_size", "size", "model_kind", "device")
        given = {name: value for name, value in vars(self).items() if name not in others and value is not None}
        for name in given:
            if name not in own:
                options = ", ".join(map(as_option, own))
                raise LabkitError(f"{as_option(name)}: a {kind.kind} has no such argument. Its own are {options}.")
        return given

    def noise(self, recipe: recipes.Recipe) -> "Batch":
        """A batch of random pictures on the device, or a rank's part: a step takes as long with them as with others."""
        from labkit import ranks
        from labkit.devices import pick_device
        from labkit.measure.record import noise

        return noise(ranks.part(self.batch_size), recipe.size, pick_device(self.device), seed=ranks.number())


def as_option(name: str) -> str:
    """The option by which an argument is given on the command line."""
    return f"--{name.replace('_', '-')}"


@dataclasses.dataclass
class Exchange:
    """How several processes share a run's training if not by averaging gradients in each step."""

    apart: Annotated[
        bool, Option("--apart", help="Three processes share no batch: each trains one module of a DeviationGAN.")
    ] = False
    module: Annotated[
        str | None, Option(help="autoencoder, translator or discriminator: train it alone; needs --through.")
    ] = None
    through: Annotated[Path | None, Option(help="Folder through which jobs exchange their modules' weights.")] = None
    average_weights: Annotated[
        bool, Option("--average-weights", help="Processes average weights now and then, not gradients in each step.")
    ] = False
    outer: Annotated[bool, Option("--outer", help="They do so by an outer optimiser, as in DiLoCo.")] = False
    exchange_every: Annotated[
        int | None, Option(help="Steps between two exchanges of weights.", min=1, show_default="an epoch")
    ] = None

    def step(
        self, model: "Model", names: Iterable[str], lr: float | None, pictures: "UnpairedData", batch_size: int
    ) -> "Step":
        """The step of this process.

        Raises:
            LabkitError: options exclude one another, or miss one that they need.
        """
        import labkit

        by_modules = bool(self.apart or self.module or self.through)
        if by_modules + self.average_weights > 1 or self.apart and (self.module or self.through):
            raise LabkitError("--apart, --module with --through, and --average-weights exclude one another: give one.")
        if self.exchange_every and not (by_modules or self.average_weights) or self.outer and not self.average_weights:
            raise LabkitError(
                "--exchange-every needs --apart, --module or --average-weights; --outer needs the last one."
            )
        epoch = max(len(pictures.train_a), len(pictures.train_b)) // batch_size
        every = self.exchange_every or max(1, epoch)
        if by_modules:
            where: dict[str, Any] = dict(module=self.module, folder=self.through)
            return labkit.parallel.apart(model, *names, exchange_every=every, lr=lr, **where)
        if self.average_weights:
            settings = labkit.parallel.OUTER if self.outer else None
            return labkit.parallel.averaged(model, *names, average_every=every, outer=settings, lr=lr)
        return shared_step(model, names, lr)


def shared_step(model: "Model", names: Iterable[str], lr: float | None = None) -> "Step":
    """A step with these speed-ups and, in one of several processes, the one that lets them share the batch."""
    import labkit
    from labkit.measure.autotune import shared

    return labkit.make_step(model, *dict.fromkeys([*names, *shared()]), lr=lr)


def speedup_names(speedups: str) -> list[str]:
    """The names in a list with commas."""
    return [name.strip() for name in speedups.split(",") if name.strip()]


def with_options(command: Callable[..., None]) -> Callable[..., None]:
    """Gives a command the options of each of its parameters that is a dataclass of options, such as those above."""
    own = inspect.signature(command).parameters
    kinds: dict[str, Any] = {
        name: one.annotation for name, one in own.items() if dataclasses.is_dataclass(one.annotation)
    }
    groups = {name: inspect.signature(kind).parameters for name, kind in kinds.items()}

    @functools.wraps(command)
    def run(**given: Any) -> None:
        made = {name: kinds[name](**{one: given.pop(one) for one in group}) for name, group in groups.items()}
        command(**made, **given)

    options = [
        option.replace(kind=inspect.Parameter.KEYWORD_ONLY)
        for name, one in own.items()
        for option in (groups[name].values() if name in groups else [one])
    ]
    run.__signature__ = inspect.Signature(options)  # type: ignore[attr-defined]  # read by typer
    run.__annotations__ = {option.name: option.annotation for option in options}
    return run
