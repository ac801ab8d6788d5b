"""A new run that starts from the weights of another one, of labkit or of the public reference."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from labkit.errors import CheckpointError
from labkit.models import CycleGAN
from labkit.models.model import Model
from labkit.training import checkpoints
from labkit.training import reference_weights as reference

# The settings that decide which networks a model has; all others concern its training.
ARCHITECTURE = (*reference.ARCHITECTURE, "blocks", "translators", "autoencoders", "judged")


def init_from(model: Model, path: Path | str) -> None:
    """Loads the weights of a trained model into a new one, and nothing else: a run with it begins at step 0.

    Optimisers, pools and schedule are new, and so are pictures and all settings that do not concern the networks.

    Args:
        model: of the same kind and with the same networks; its weights are replaced.
        path: a run's folder, its checkpoint or one that it kept; or a folder in which the public reference saved
            ``latest_net_G_A.pth``, ``..._G_B.pth``, ``..._D_A.pth`` and ``..._D_B.pth``. Its dropout, if any, is gone.

    Raises:
        CheckpointError: nothing of this is there, a file is damaged, or the networks differ: the message names the
            arguments.
    """
    path = Path(path)
    if path.suffix == ".pth" and path.is_file():
        raise CheckpointError(f"{path}: one network is too few to train on. Name the folder that holds all four.")
    try:
        if path.is_dir() and not (path / checkpoints.FILE).exists() and any(path.glob("latest_net_*.pth")):
            _from_reference(model, path)
        else:
            _from_run(model, path)
    except (RuntimeError, LookupError, ValueError) as error:
        raise CheckpointError(
            f"{path}: the weights are of other networks ({checkpoints.first_line(error)})."
        ) from error


def _from_run(model: Model, path: Path) -> None:
    state = checkpoints.load(path)
    _check(path, {"model": state["kind"]}, {"model": model.kind})
    _check(path, {name: value for name, value in state["settings"].items() if name in ARCHITECTURE}, model.settings)
    model.load_state_dict(state["step"]["model"])


def _from_reference(model: Model, folder: Path) -> None:
    if not isinstance(model, CycleGAN):
        raise CheckpointError(f"{folder}: the public reference has no {model.kind}, only a CycleGAN.")
    files = {name: folder / f"latest_net_{name}.pth" for name in reference.NETWORKS}
    if missing := [file.name for file in files.values() if not file.exists()]:
        raise CheckpointError(f"{folder}: {', '.join(missing)} missing. A run starts from all four networks.")
    wanted = dict(model.settings)
    if wanted["discriminator"] == "basic":
        wanted |= {"discriminator": "n_layers", "n_layers": 3}
    for name, file in files.items():
        weights = reference.read_weights(file)
        settings_of = reference.generator_settings if "G" in name else reference.discriminator_settings
        _check(file, settings_of(weights), wanted)
        reference.load_into(getattr(model, name), weights)


def _check(path: Path, saved: dict[str, Any], wanted: dict[str, Any]) -> None:
    """Raises `CheckpointError` if networks differ in these arguments."""
    differing = [
        f"{name}={value!r} there, {wanted[name]!r} here" for name, value in saved.items() if value != wanted[name]
    ]
    if differing:
        raise CheckpointError(
            f"{path}: the weights are of other networks: {'; '.join(differing)}. Give the run the same networks (on "
            "the command line --ngf for ngf, and so on), or start without these weights."
        )
