"""Checkpoints: written whole or not at all, and read without running any code in them."""

from __future__ import annotations

import io
import pickle
import warnings
import zipfile
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils._pytree import keystr, tree_leaves_with_path, tree_map_only

from labkit.data.batches import Stamp
from labkit.devices import out_of_memory, pick_device
from labkit.errors import CheckpointError, LabkitError, TrainingError
from labkit.models import MODELS
from labkit.models.model import Model
from labkit.networks.layers import CUSTOM
from labkit.settings import defaults_of
from labtrace.files import atomic_write

FILE = "checkpoint.pt"
KEPT = "kept"  # folder of the checkpoints of single steps, in the run's


def as_numpy(data: bytearray, dtype: str, shape: tuple[int, ...] | None) -> Any:
    """An array of NumPy's in a checkpoint, or without shape a number. Files have this function's name: keep it here."""
    return np.frombuffer(data, dtype)[0] if shape is None else np.frombuffer(data, dtype).reshape(shape)


# NumPy's own functions cannot be allowed: a file can let them read any address in memory.
torch.serialization.add_safe_globals([as_numpy])


class Plain:
    """The module with which `torch.save` pickles: NumPy's numbers and arrays in a form that can be read again."""

    class Pickler(pickle.Pickler):  # noqa: D106
        def reducer_override(self, value: Any) -> Any:
            if (type(value) is np.ndarray or isinstance(value, np.generic)) and value.dtype.kind not in "OV":
                shape = value.shape if isinstance(value, np.ndarray) else None
                return as_numpy, (bytearray(value.tobytes()), value.dtype.str, shape)
            return NotImplemented


def write_checkpoint(state: dict, folder: Path) -> None:
    """Writes `state` as the checkpoint of `folder`. It takes the place of the old one once it is written.

    Raises:
        LabkitError: `check` refuses the state. The old checkpoint stays.
        CheckpointError: it cannot be written, for example on a full disk. The old checkpoint stays.
    """
    check(state)
    with atomic_write(folder / FILE, CheckpointError) as part, open(part, "wb") as opened:
        torch.save(state, opened, pickle_module=Plain)


def check(state: dict) -> None:
    """Raises an error if no checkpoint may hold this state of a run.

    Raises:
        TrainingError: a weight or another number of the step is not finite.
        LabkitError: `check_reads` refuses it.
    """
    for path, leaf in tree_leaves_with_path(state["step"]):
        # A sum is quick, and finite only if all numbers are. One that is too large for its type settles nothing.
        if torch.is_tensor(leaf) and leaf.is_floating_point() and not (leaf.sum().isfinite() or leaf.isfinite().all()):
            raise TrainingError(f"step{keystr(path)}: not saved, since a number in it is not finite.")
    check_reads(state, "checkpoint")


def check_reads(state: Any, where: str) -> None:
    """Writes `state`, without the numbers in its tensors, and reads it as a checkpoint is read: some milliseconds.

    Raises:
        LabkitError: it cannot be read. The message has the place, which begins with `where`, and the type.
    """
    file = io.BytesIO()
    try:
        torch.save(tree_map_only(Tensor, lambda tensor: tensor.new_empty(0), state), file, pickle_module=Plain)
        torch.load(io.BytesIO(file.getvalue()), weights_only=True)
    except Exception as error:
        held = state.items() if isinstance(state, dict) else enumerate(state) if isinstance(state, list | tuple) else ()
        for key, part in held:
            check_reads(part, f"{where}[{key!r}]")
        raise LabkitError(f"{where}: no checkpoint gives back {type(state)}. Convert it, as with float().") from error


def load(path: Path | str, device: torch.device | str = "cpu") -> dict:
    """The checkpoint in a file, or in a run's folder.

    Raises:
        CheckpointError: it is missing, damaged, or not a checkpoint of labkit.
    """
    state = read(path, device)
    if not isinstance(state, dict) or "settings" not in state or "step" not in state:
        raise CheckpointError(f"{path}: this is not a checkpoint of labkit. (labkit.load_generator reads .pth files.)")
    state = {"kind": "CycleGAN", **state}  # the only kind there was before it was written down
    return state | {"settings": {**defaults_of(state["kind"]), **state["settings"]}}  # those that came later


def kept_file(folder: Path | str, step: int) -> Path:
    """The file in which a run keeps the checkpoint of a step (`labkit.KeepEvery`). It need not exist."""
    return Path(folder) / KEPT / f"{step:06d}.pt"


def load_model(
    path: Path | str, device: torch.device | str = "cpu", step: int | None = None, **networks: nn.Module
) -> Model:
    """The trained model of a run, from its folder or its checkpoint file, in evaluation mode.

    If the run kept a moving average of its weights, the model has the average.

    Args:
        path: the folder or the file.
        device: where the model goes.
        step: a step whose checkpoint was kept in the folder. None takes the newest checkpoint.
        networks: generator=... and discriminator=..., the networks of your own that the run was made with, as
            `labkit.CycleGAN` takes them. A checkpoint holds their weights and not their code, so that reading one runs
            nothing. Your modules stay as they are: the model has copies.

    Raises:
        CheckpointError: there is no such checkpoint, it is damaged, or it needs a network of your own that is not
            given.
        RuntimeError: a network of your own has other weights.
    """
    state = load(path if step is None else kept_file(path, step), device)
    for argument, setting in state["settings"].items():
        if str(setting).startswith(CUSTOM) and argument not in networks:
            raise CheckpointError(
                f"{path}: its {argument} is a network of your own ({setting.removeprefix(CUSTOM)}), of "
                f"which it has no code. Pass the module: labkit.load_model({str(path)!r}, {argument}=...)."
            )
    model = MODELS[state["kind"]](**state["settings"] | networks).to(device)
    model.load_state_dict(state.get("average", state["step"]["model"]))
    return model.eval()


def check_settings(path: Path, kind: str, saved: dict[str, Any], wanted: dict[str, Any]) -> None:
    """Raises `CheckpointError` naming every setting in which a checkpoint differs from the one wanted."""
    differing = [
        f"{name}={saved.get(name)!r} there, {wanted.get(name)!r} here"
        for name in {**wanted, **saved}
        if not np.array_equal(saved.get(name), wanted.get(name))  # type: ignore[arg-type]
    ]
    if differing:
        raise CheckpointError(
            f"{path}: the checkpoint is of another {kind}: {'; '.join(differing)}. Use the same settings, or another "
            f"folder, with --init-from {path} for its weights."
        )


def check_pictures(path: Path, saved: list[list[Stamp]], here: list[list[Stamp]]) -> None:
    """Warns if pictures are others than those of a checkpoint, and says how many. Both are `UnpairedData.files`.

    A picture counts as the same if its name, its bytes and its checksums are: old checkpoints have no checksums.

    Raises:
        CheckpointError: A and B are exchanged, or no picture of either has the name of one that the run has seen.
    """
    changes, known, exchanged = [], 0, True
    columns = 3 if isinstance(saved[0][0][2], str) else 2
    for k, domain in enumerate("AB"):
        old, new = saved[k], here[k]
        own, other = ([_common(new, files, n) for n in (1, columns)] for files in (old, saved[1 - k]))
        known, exchanged = known + own[0], exchanged and other[1] > own[1]
        counts = {"gone": len(old) - own[0], "new": len(new) - own[0], "changed": own[0] - own[1]}
        if [stamp[:columns] for stamp in old] != [stamp[:columns] for stamp in new]:
            found = ", ".join(f"{count} {word}" for word, count in counts.items() if count)
            changes.append(f"of {domain} {found or 'all in another order'}")
    if exchanged or not known:
        now = "trainA and trainB have changed places" if exchanged else f"none of these: {'; '.join(changes)}"
        check_settings(path, "run", {"pictures": "trainA and trainB"}, {"pictures": now})
    if changes:
        warnings.warn(
            f"{path}: pictures changed since this run began: {'; '.join(changes)}. Training continues with them.",
            stacklevel=2,
        )


def _common(some: list[Stamp], others: list[Stamp], columns: int) -> int:
    """The number of pictures that are in both, by the first columns of their stamps."""
    first, second = (Counter(stamp[:columns] for stamp in files) for files in (some, others))
    return (first & second).total()


def read(path: Path | str, device: torch.device | str = "cpu") -> Any:
    """The content of a file that `torch.save` wrote, or of a folder's checkpoint: tensors, numbers and texts only.

    The file is a zip archive with a CRC-32 checksum of each tensor, which `torch.load` ignores: they are compared
    first. Files of PyTorch before 1.6 are no archives, and have no checksums.

    Raises:
        CheckpointError: the file is missing, is damaged, or holds more.
    """
    device, file = pick_device(device), Path(path)
    file = file / FILE if file.is_dir() else file
    run = file.parent.parent if file.parent.name == KEPT else file.parent
    kept = ", ".join(str(kept) for kept in sorted(run.glob(f"{KEPT}/[0-9]*.pt")) if kept != file)
    advice = f"The run kept {kept}: to continue from one of them, copy it to {run / FILE}." if kept else ""
    if not file.is_file():
        raise CheckpointError(f"{file}: there is no checkpoint here. {advice or 'Was the run ever saved?'}")
    try:
        if zipfile.is_zipfile(file):
            with zipfile.ZipFile(file) as archive:
                if changed := archive.testzip():
                    raise ValueError(f"{changed} does not have its checksum")
        return torch.load(file, map_location=device, weights_only=True)
    except Exception as error:  # on damaged archives zipfile raises nearly anything
        if out_of_memory(error) or isinstance(error, PermissionError):
            raise
        code = str(error).partition("GLOBAL ")[2].split()  # the rest of PyTorch's words advise to read it unsafely
        text = f"{code[0]} in it could run code, and was refused" if code else "this is no checkpoint, or it is damaged"
        raise CheckpointError(f"{file}: {text}. {advice}") from error


def in_one_line(error: Exception) -> str:
    """The text of an error, at most 200 characters of it, or its name if it has none."""
    return " ".join(str(error).split())[:200] or type(error).__name__
