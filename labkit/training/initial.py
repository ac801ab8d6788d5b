"""A new run that starts from the weights of another one, of labkit or of the public reference."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch

from labkit.errors import CheckpointError, LabkitError
from labkit.model import Model
from labkit.models import CycleGAN
from labkit.training import checkpoints
from labkit.training.reference_weights import discriminator_settings, generator_settings, load_into, read_weights

GENERATORS, DISCRIMINATORS = ("G_A", "G_B"), ("D_A", "D_B")


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
    if path.is_dir() and not (path / checkpoints.FILE).exists() and any(path.glob("latest_net_*.pth")):
        _from_reference(model, path)
    else:
        _from_run(model, path)


def _from_run(model: Model, path: Path) -> None:
    state = checkpoints.load(path)
    _check(path, {"model": state["kind"]}, {"model": model.kind})
    saved = {name: value for name, value in state["settings"].items() if name in model.settings}
    networks = {name for name, value in saved.items() if value != model.settings[name] and _changes(model, name, value)}
    _check(path, {name: saved[name] for name in networks}, model.settings)
    try:
        model.load_state_dict(state["step"]["model"])
    except RuntimeError as error:
        raise CheckpointError(
            f"{path}: the weights are of other networks ({checkpoints.first_line(error)})."
        ) from error


def _changes(model: Model, name: str, value: Any) -> bool:
    """Whether the networks have other layers with this value of an argument."""
    with torch.random.fork_rng(devices=[]):  # new networks draw weights
        try:
            other = type(model)(**{**model.arguments(), name: value})
        except LabkitError:  # it does not go with the other arguments
            return True
    return str(other) != str(model)


def _from_reference(model: Model, folder: Path) -> None:
    if not isinstance(model, CycleGAN):
        raise CheckpointError(
            f"{folder}: the public reference has no {model.kind}; its networks start a CycleGAN only."
        )
    files = {name: folder / f"latest_net_{name}.pth" for name in GENERATORS + DISCRIMINATORS}
    missing = [file.name for file in files.values() if not file.exists()]
    if missing:
        raise CheckpointError(f"{folder}: {', '.join(missing)} missing. A run starts from all four networks.")
    wanted = dict(model.settings)
    if wanted["discriminator"] == "basic":
        wanted |= {"discriminator": "n_layers", "n_layers": 3}
    for name, file in files.items():
        weights, settings_of = read_weights(file), generator_settings if name in GENERATORS else discriminator_settings
        try:
            _check(file, settings_of(weights), wanted)
            load_into(getattr(model, name), weights)
        except (RuntimeError, LookupError, ValueError) as error:
            raise CheckpointError(
                f"{file}: not the weights of such a network of the public reference ({checkpoints.first_line(error)})."
            ) from error


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
