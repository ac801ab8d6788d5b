"""Options of `labkit train` that belong together: the learning rate, and the pictures."""

import dataclasses
import difflib
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from typer import Option

from labkit import recipes
from labkit.commands.options import FRUIT, PHOTOGRAPHS, as_option
from labkit.commands.run_options import positive
from labkit.errors import LabkitError, check_known

if TYPE_CHECKING:  # --help should not wait for torch
    from labkit.data.batches import UnpairedData

RATES = f"fruit, with CycleGAN, {FRUIT.lr}; others the model's own"
DECAYS = f"fruit none, others {PHOTOGRAPHS.decay:.0%} of the steps"


@dataclasses.dataclass
class Rate:
    """The learning rate and how it falls."""

    lr: Annotated[float | None, Option(help="Adam's learning rate.", callback=positive, show_default=RATES)] = None
    lr_policy: Annotated[str, Option(help="How it falls: linear, step or cosine.")] = "linear"
    decay_steps: Annotated[
        int | None,
        Option(help="linear: the last steps, over which it falls to 0.", min=0, show_default=DECAYS),
    ] = None
    decay_every: Annotated[
        int | None,
        Option(help="step: steps after which it falls to a tenth.", min=1, show_default="a quarter of the steps"),
    ] = None

    def schedule(self, recipe: recipes.Recipe) -> Callable[[int], float] | None:
        """From the number of steps done to the factor on the learning rate; None leaves that constant.

        Raises:
            LabkitError: the policy is unknown, or an option belongs to another one.
        """
        import labkit

        if self.lr_policy == "plateau":
            raise LabkitError(
                "--lr-policy plateau: it waits for a measure to stop falling, and a GAN has none. The reference gives "
                "it the constant 0, so that its rate falls to a fifth every six epochs: take step or linear."
            )
        check_known("lr-policy", self.lr_policy, ("linear", "step", "cosine"))
        for name, policy in (("decay_steps", "linear"), ("decay_every", "step")):
            if getattr(self, name) is not None and self.lr_policy != policy:
                raise LabkitError(f"{as_option(name)} belongs to --lr-policy {policy}, not to {self.lr_policy}.")
        if self.lr_policy == "cosine":
            return labkit.cosine_schedule(recipe.steps)
        if self.lr_policy == "step":
            return labkit.step_schedule(self.decay_every or max(1, recipe.steps // 4))
        decay = round(recipe.decay * recipe.steps) if self.decay_steps is None else self.decay_steps
        if decay > recipe.steps:
            raise LabkitError(f"--decay-steps {decay}: the run has {recipe.steps} steps. Give fewer, or more --steps.")
        return labkit.linear_schedule(recipe.steps - decay, decay) if decay else None


@dataclasses.dataclass
class Pictures:
    """The pictures to train on, and how those of folders are prepared."""

    data: Annotated[str, Option(help="'fruit', a public set ('horse2zebra'), or a folder with trainA and trainB.")] = (
        "fruit"
    )
    preprocess: Annotated[str, Option(help="resize_and_crop, crop, scale_width, scale_width_and_crop or none.")] = (
        "resize_and_crop"
    )
    load_size: Annotated[
        int | None, Option(help="Pixels to resize to before the crop.", min=16, show_default="286/256 of --size")
    ] = None
    no_flip: Annotated[bool, Option("--no-flip", help="Mirror no picture.")] = False

    @property
    def square(self) -> bool:
        """Whether the networks see squares of --size, whatever the pictures are."""
        return self.preprocess not in ("scale_width", "none")

    def open(self, size: int, seed: int) -> "UnpairedData":
        """The pictures, for networks that see squares of `size` pixels; the seed paints fruit.

        Raises:
            LabkitError: there are no such pictures, or they cannot be prepared like this.
        """
        import labkit
        from labkit import ranks
        from labkit.data.download import PUBLIC_SETS

        name = self.data
        if name == "fruit":
            if self != Pictures():
                raise LabkitError(
                    "--preprocess, --load-size and --no-flip are for folders; fruit is painted at --size."
                )
            return labkit.fruit(size=size, seed=seed)
        folder: Path | str = name
        if name in PUBLIC_SETS and not Path(name).is_dir():
            if ranks.count() > 1 and not Path("datasets", name).is_dir():
                raise LabkitError(
                    f"--data {name}: this set is not there yet, and several processes should not all fetch it. Fetch "
                    f"it first: python -c \"import labkit; labkit.download('{name}')\""
                )
            folder = labkit.download(name)
        close = difflib.get_close_matches(name, ["fruit", *PUBLIC_SETS], n=1)
        if close and not Path(folder).exists():
            raise LabkitError(f"--data {name}: there is no such folder or set. Did you mean {close[0]!r}?")
        return labkit.folders(folder, size, preprocess=self.preprocess, load_size=self.load_size, flip=not self.no_flip)
