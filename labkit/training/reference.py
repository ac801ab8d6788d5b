"""A CycleGAN back to the public reference, github.com/junyanz/pytorch-CycleGAN-and-pix2pix: its files, its options."""

from __future__ import annotations

from pathlib import Path

import torch

from labkit.errors import LabkitError
from labkit.files import atomic_write
from labkit.model import Model
from labkit.models import CycleGAN
from labkit.networks.layers import Generator
from labkit.training.export import loaded

# What the reference has of labkit's choices. It has all of the other arguments' values.
KNOWN = {
    "generator": ("resnet_9blocks", "resnet_6blocks", "unet_256", "unet_128"),
    "norm": ("instance", "batch", "none"),
}
NETWORKS = {
    "generator": "--netG",
    "discriminator": "--netD",
    "ngf": "--ngf",
    "ndf": "--ndf",
    "n_layers": "--n_layers_D",
    "norm": "--norm",
}
LOSSES = {
    "lambda_a": "--lambda_A",
    "lambda_b": "--lambda_B",
    "lambda_identity": "--lambda_identity",
    "gan_mode": "--gan_mode",
    "pool_size": "--pool_size",
}


def export_reference(model: Model | Generator | Path | str, folder: Path | str) -> list[Path]:
    """Writes a CycleGAN's networks as the public reference saves them, so that it can translate and train with them.

    The files are ``latest_net_G_A.pth``, ``..._G_B.pth``, ``..._D_A.pth`` and ``..._D_B.pth``. The reference reads them
    from ``checkpoints/NAME``; `reference_commands` says how to start it. Like its own files they hold neither the state
    of the optimisers nor the pools of earlier fakes.

    Args:
        model: a `labkit.CycleGAN`, a run's folder, or its checkpoint.
        folder: where the files go; it is made if it is missing.

    Returns:
        the files written.

    Raises:
        LabkitError: the reference has no such networks, there are such files already, or they cannot be written.
        CheckpointError: the run or the checkpoint cannot be read.
    """
    folder = Path(folder)
    trained, _ = _as_reference(loaded(model))
    networks = {"G_A": trained.G_A, "G_B": trained.G_B, "D_A": trained.D_A, "D_B": trained.D_B}
    files = {folder / f"latest_net_{name}.pth": network for name, network in networks.items()}
    taken = [file.name for file in files if file.exists()]
    if taken:
        raise LabkitError(
            f"{folder}: {', '.join(taken)} would be replaced, and may be the only copy. Name another folder, or move "
            "the old files away."
        )
    for file, network in files.items():
        weights = {name: tensor.detach().cpu().contiguous() for name, tensor in network.state_dict().items()}
        with atomic_write(file) as part, open(part, "wb") as opened:
            torch.save(weights, opened)
    return list(files)


def reference_commands(model: Model | Generator | Path | str, name: str) -> list[str]:
    """The commands with which the public reference tests, and goes on to train, the networks in ``checkpoints/NAME``.

    Raises:
        LabkitError: the reference has no such networks.
        CheckpointError: the run or the checkpoint cannot be read.
    """
    _, settings = _as_reference(loaded(model))

    def options(table: dict[str, str]) -> str:
        return " ".join(f"{option} {settings[setting]}" for setting, option in table.items())

    run = f"--dataroot DATA --name {name} --model cycle_gan --no_dropout {options(NETWORKS)}"
    return [f"python test.py {run}", f"python train.py --continue_train {run} {options(LOSSES)}"]


def _as_reference(model: object) -> tuple[CycleGAN, dict]:
    """The model, and its settings as the reference would have them. Raises `LabkitError` if it lacks the networks."""
    if not isinstance(model, CycleGAN):
        raise LabkitError(
            "Only a CycleGAN can go back to the public reference. It has no DeviationGAN, and a generator from a .pth "
            "file is in its form already."
        )
    settings = dict(model.settings)
    if settings["generator"] == "resnet_9blocks_narrow":  # the reference's network with half the filters
        settings |= {"generator": "resnet_9blocks", "ngf": max(1, settings["ngf"] // 2)}
    for setting, known in KNOWN.items():
        if settings[setting] not in known:
            raise LabkitError(
                f"{setting}={settings[setting]!r}: the public reference has no such networks, only those of "
                f"{', '.join(known)}. An ONNX file can hold any generator: labkit export model.onnx"
            )
    return model, settings
