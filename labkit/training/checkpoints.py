"""Checkpoints: written whole or not at all, and read without running anything that is in them."""

from __future__ import annotations

import math
import pickle
import shutil
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from labkit.devices import pick_device
from labkit.errors import CheckpointError, DivergedError
from labkit.files import atomic_write
from labkit.models import MODELS
from labkit.models.model import Model
from labkit.networks import layers

FILE = "checkpoint.pt"
KEPT = "kept"  # folder of the checkpoints of single steps, in the run's


def save(state: dict, folder: Path) -> None:
    """Writes `state` as the checkpoint of `folder`, beside the old one first and then in its place.

    Raises:
        DivergedError: a number of its step is not finite; the old checkpoint stays.
        CheckpointError: the disk does not take it; the old checkpoint stays.
    """
    file = folder / FILE
    floats = [tensor for tensor in _tensors(state["step"]) if tensor.is_floating_point()]
    if not torch.stack([tensor.isfinite().all().cpu() for tensor in floats]).all():
        raise DivergedError(f"{file}: not saved, since a weight is no longer a finite number.")
    try:
        with atomic_write(file, CheckpointError) as part, open(part, "wb") as opened:
            torch.save(state, opened)
    except CheckpointError as error:
        needed = sum(tensor.nbytes for tensor in _tensors(state))
        if not folder.is_dir() or (free := shutil.disk_usage(folder).free) > needed:
            raise
        beside = " beside the checkpoint that is there" if file.exists() else ""
        raise CheckpointError(
            f"{file}: no space: {math.ceil(needed / 1e6)} MB needed{beside}, and {free / 1e6:.0f} MB are free. Make "
            "room."
        ) from error


def load(path: Path | str, device: torch.device | str = "cpu") -> dict:
    """The checkpoint in a file, or in a run's folder.

    Raises:
        CheckpointError: it is missing, damaged, or not a checkpoint of labkit.
    """
    state = read(file_of(path), device)
    if not isinstance(state, dict) or "settings" not in state or "step" not in state:
        raise CheckpointError(
            f"{path}: this is not a checkpoint of labkit. A generator of the public reference is read by "
            "labkit.load_generator, and on the command line if its name ends in .pth."
        )
    return {"kind": "CycleGAN", **state}  # the only kind there was before it was written down


def kept_file(folder: Path | str, step: int) -> Path:
    """Where a run keeps the checkpoint of a step, whether it is there or not."""
    return Path(folder) / KEPT / f"{step:06d}.pt"


def of_step(folder: Path | str, step: int) -> Path:
    """The checkpoint of a step, which the run kept (`labkit.KeepEvery`).

    Raises:
        CheckpointError: this step was not kept; the message names those that were.
    """
    file = kept_file(folder, step)
    if not file.is_file():
        steps = sorted(int(other.stem) for other in file.parent.glob("[0-9]*.pt"))
        kept = (
            f"Kept are the steps {', '.join(map(str, steps))}"
            if steps
            else "None was, since --keep-every was not given"
        )
        raise CheckpointError(
            f"{folder}: the checkpoint of step {step} was not kept. {kept}; without a step the last counts."
        )
    return file


def load_model(
    path: Path | str,
    device: torch.device | str = "cpu",
    step: int | None = None,
    *,
    generator: nn.Module | None = None,
    discriminator: nn.Module | None = None,
) -> Model:
    """The trained model of a run, from its folder or its checkpoint file, in evaluation mode.

    Args:
        path: the folder or the file.
        device: where the model goes.
        step: a step whose checkpoint was kept in the folder; None takes the newest checkpoint.
        generator, discriminator: networks of your own that the run was made with, as `labkit.CycleGAN` takes them. A
            checkpoint holds their weights and not their code, so that reading one runs nothing. Your modules stay as
            they are: the model has copies.

    Raises:
        CheckpointError: there is no such checkpoint, it is damaged, or it needs a network of your own that is not
            given or has other weights.
    """
    path = path if step is None else of_step(path, step)
    state = load(path, device)
    settings = state["settings"] | _own_networks(
        path, state["settings"], generator=generator, discriminator=discriminator
    )
    try:
        model = MODELS[state["kind"]](**settings).to(device)
        model.load_state_dict(state["step"]["model"])
    except (TypeError, RuntimeError, KeyError) as error:
        raise CheckpointError(f"{path}: settings and weights do not agree ({first_line(error)}).") from error
    return model.eval()


def _own_networks(path: Path | str, settings: dict[str, Any], **given: nn.Module | None) -> dict[str, nn.Module]:
    """The networks of one's own for a checkpoint. Raises `CheckpointError` if one is missing or superfluous."""
    networks = {}
    for argument, network in given.items():
        setting = settings.get(argument)
        if layers.is_custom(setting) and network is None:
            name = str(setting).removeprefix(layers.MARK)
            raise CheckpointError(
                f"{path}: its {argument} is a network of your own ({name}), and a checkpoint does not hold code. Pass "
                f"the module, in Python: labkit.load_model({str(path)!r}, {argument}=...)."
            )
        if network is not None and not layers.is_custom(setting):
            known = f"its {argument} is {setting!r}" if setting else f"this model has no {argument}"
            raise CheckpointError(f"{path}: {known}, no network of your own. Leave {argument}=... out.")
        if network is not None:
            networks[argument] = network
    return networks


def check_settings(path: Path, kind: str, saved: dict[str, Any], wanted: dict[str, Any], advice: str = "") -> None:
    """Raises `CheckpointError` naming every setting in which a checkpoint differs from the one wanted."""
    differing = [
        f"{name}={saved.get(name)!r} there, {wanted.get(name)!r} here"
        for name in {**wanted, **saved}
        if saved.get(name) != wanted.get(name)
    ]
    if differing:
        raise CheckpointError(
            f"{path / FILE}: the checkpoint is of another {kind}: {'; '.join(differing)}. "
            f"Use the same settings to resume, or another folder to start again.{advice}"
        )


def file_of(path: Path | str) -> Path:
    """The checkpoint file itself, or the one in a run's folder. Raises `CheckpointError` if there is none."""
    path = Path(path)
    file = path / FILE if path.is_dir() else path
    if not file.is_file():
        raise CheckpointError(f"{file}: there is no checkpoint here. Is the path right, and was the run ever saved?")
    return file


def read(file: Path, device: torch.device | str = "cpu") -> Any:
    """What `torch.save` wrote there, if it is tensors, numbers and texts only.

    The checksums in the file are compared first, so that not a bit of it can have changed.

    Raises:
        CheckpointError: it cannot be read, is damaged, or holds more.
    """
    device = pick_device(device)
    try:
        _check_sums(file)
        return torch.load(file, map_location=device, weights_only=True)
    except OSError as error:
        raise CheckpointError(f"{file}: the checkpoint cannot be read ({error.strerror or error}).") from error
    except (pickle.UnpicklingError, RuntimeError, EOFError, KeyError, ValueError) as error:
        raise CheckpointError(  # without PyTorch's own words, which advise to read it unsafely
            f"{file}: this is no checkpoint, or it is damaged, or holds more than weights and was refused. "
            f"{_instead(file)}"
        ) from error


def _instead(file: Path) -> str:
    """What to do about a damaged file: the checkpoints that the run kept, if there are any, are named."""
    kept = [str(other) for other in sorted((file.parent / KEPT).glob("[0-9]*.pt")) if other != file]
    if not kept:
        return "Use a copy, or train again into another folder."
    return f"The run kept {', '.join(kept)}: to go on from one of them, copy it to {file}."


def _check_sums(file: Path) -> None:
    """Raises `ValueError` if a part of the file does not have its checksum.

    The file is a zip archive, in which `torch.save` puts a CRC-32 of each tensor, and `torch.load` does not look at it.
    The form that PyTorch wrote before 1.6 is another, without checksums.
    """
    with open(file, "rb") as opened:
        if opened.read(2) != b"PK" and not zipfile.is_zipfile(opened):
            return
    try:
        with zipfile.ZipFile(file) as archive:
            changed = archive.testzip()
    except OSError:
        raise
    except Exception as error:  # on damaged archives zipfile raises nearly anything
        raise ValueError(f"{type(error).__name__}: {error}") from error
    if changed is not None:
        raise ValueError(f"{changed} does not have its checksum")


def _tensors(state: Any) -> Iterator[Tensor]:
    if isinstance(state, Tensor):
        yield state
    elif isinstance(state, dict):
        for value in state.values():
            yield from _tensors(value)


def first_line(error: Exception) -> str:
    """The first line of an error's text that says something, cut to a length that a message bears.

    PyTorch begins its errors on weights that do not fit with a title, which ends in a colon.
    """
    lines = str(error).strip().splitlines() or [type(error).__name__]
    titled = lines[0].endswith(":") and len(lines) > 1
    return lines[titled].strip()[:200]
