"""Networks of the public reference, github.com/junyanz/pytorch-CycleGAN-and-pix2pix: its files read, and written."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from labkit.errors import CheckpointError, LabkitError
from labkit.files import atomic_write
from labkit.models import CycleGAN
from labkit.networks.generators import make_generator
from labkit.networks.layers import Generator
from labkit.networks.resnet import ResnetGenerator
from labkit.training.checkpoints import file_of, first_line, load_model, read

NETWORKS = ("G_A", "G_B", "D_A", "D_B")
GENERATORS = ("resnet_9blocks", "resnet_6blocks", "unet_256", "unet_128")
NORMS = ("instance", "batch", "none")
# Its options that have other names than ours, those that make the networks, and those that train them.
OPTIONS = {"generator": "netG", "discriminator": "netD", "n_layers": "n_layers_D"}
OPTIONS |= {"lambda_a": "lambda_A", "lambda_b": "lambda_B"}
ARCHITECTURE = ("generator", "discriminator", "ngf", "ndf", "n_layers", "norm")
TRAINING = ("lambda_a", "lambda_b", "lambda_identity", "gan_mode", "pool_size")

Weights = dict[str, Tensor]


def load_generator(path: Path | str, device: torch.device | str = "cpu") -> Generator:
    """A generator the public reference saved or published ("latest_net_G.pth"), in evaluation mode.

    Its kind is read off the names of its weights. It may have been saved on several GPUs, with ``module.`` before each
    name, and it may have dropout, which does nothing in a trained network.

    Raises:
        CheckpointError: the file is missing or damaged, or holds no such generator.
    """
    weights = read_weights(path, device)
    try:
        settings = generator_settings(weights)
        blocks = re.fullmatch(r"resnet_(\d+)blocks", settings["generator"])
        if blocks:  # any number of them, not only those that have a name
            generator: Generator = ResnetGenerator(int(blocks[1]), settings["ngf"], settings["norm"])
        else:
            generator = make_generator(settings["generator"], settings["ngf"], settings["norm"])
        load_into(generator.to(device), weights)
    except (RuntimeError, LookupError, ValueError) as error:
        raise CheckpointError(
            f"{path}: not a ResNet or U-Net generator of the public reference ({first_line(error)})."
        ) from error
    return generator.eval()


def read_weights(path: Path | str, device: torch.device | str = "cpu") -> Weights:
    """The weights in a file of the public reference, by the names they have in labkit.

    Raises:
        CheckpointError: the file is missing or damaged, or holds no weights.
    """
    weights = read(file_of(path), device)
    if not weights or not isinstance(weights, dict) or not all(isinstance(one, Tensor) for one in weights.values()):
        raise CheckpointError(f"{path}: no weights of a generator. For a run of labkit use labkit.load_model.")
    if all(name.startswith("module.") for name in weights):  # saved on several GPUs, from nn.DataParallel
        weights = {name.removeprefix("module."): weight for name, weight in weights.items()}
    if any(".conv_block.6." in name and weight.dim() == 4 for name, weight in weights.items()):
        # Layer 5 is dropout, which has no weights: the second convolution and its norm have moved down by one.
        for old, new in ((".conv_block.6.", ".conv_block.5."), (".conv_block.7.", ".conv_block.6.")):
            weights = {name.replace(old, new): weight for name, weight in weights.items()}
    return weights


def load_into(network: nn.Module, weights: Weights) -> None:
    """Loads weights that `read_weights` read. Raises `RuntimeError` if they are of another network."""
    if not any(isinstance(layer, nn.BatchNorm2d) for layer in network.modules()):
        # Checkpoints of PyTorch before 0.4.1 hold running statistics that instance norm does not have.
        statistics = (".running_mean", ".running_var", ".num_batches_tracked")
        weights = {name: weight for name, weight in weights.items() if not name.endswith(statistics)}
    network.load_state_dict(weights)


def generator_settings(weights: Weights) -> dict:
    """The arguments generator, ngf and norm of the `CycleGAN` that these weights of a generator belong to.

    Raises:
        LookupError: a ResNet's or U-Net's names are missing.
        ValueError: they are of neither.
    """
    if "model.1.weight" in weights:
        norm = "batch" if "model.2.weight" in weights else "instance" if "model.1.bias" in weights else "none"
        blocks = len({name.split(".")[1] for name in weights if "conv_block" in name})
        return {"generator": f"resnet_{blocks}blocks", "ngf": weights["model.1.weight"].shape[0], "norm": norm}
    depth = max(len(re.findall(r"model\.[13]\.(?=model)", name)) for name in weights)
    norm = "instance" if "model.model.1.model.3.model.1.bias" in weights else "batch"
    kind = {7: "unet_256", 6: "unet_128"}[depth]
    return {"generator": kind, "ngf": weights["model.model.0.weight"].shape[0], "norm": norm}


def discriminator_settings(weights: Weights) -> dict:
    """The arguments discriminator, ndf, norm and, for a PatchGAN, n_layers that these weights belong to.

    Raises:
        LookupError: they are not a discriminator's.
    """
    kind, first = ("pixel", "net") if "net.0.weight" in weights else ("n_layers", "model")
    norm = "batch" if f"{first}.3.weight" in weights else "instance" if f"{first}.2.bias" in weights else "none"
    settings = {"discriminator": kind, "ndf": weights[f"{first}.0.weight"].shape[0], "norm": norm}
    if kind == "n_layers":  # between the first convolution and the last
        settings["n_layers"] = sum(weight.dim() == 4 for weight in weights.values()) - 2
    return settings


def export_reference(model: nn.Module | Path | str, folder: Path | str) -> list[Path]:
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
    trained, _ = _as_reference(model)
    files = {Path(folder) / f"latest_net_{name}.pth": getattr(trained, name) for name in NETWORKS}
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


def reference_commands(model: nn.Module | Path | str, name: str) -> list[str]:
    """The commands with which the public reference tests, and goes on to train, the networks in ``checkpoints/NAME``.

    Raises:
        LabkitError: the reference has no such networks.
        CheckpointError: the run or the checkpoint cannot be read.
    """
    _, settings = _as_reference(model)

    def options(names: tuple[str, ...]) -> str:
        return " ".join(f"--{OPTIONS.get(name, name)} {settings[name]}" for name in names)

    run = f"--dataroot DATA --name {name} --model cycle_gan --no_dropout {options(ARCHITECTURE)}"
    return [f"python test.py {run}", f"python train.py --continue_train {run} {options(TRAINING)}"]


def _as_reference(model: nn.Module | Path | str) -> tuple[CycleGAN, dict[str, Any]]:
    """The model, and its settings as the reference would have them. Raises `LabkitError` if it lacks the networks."""
    model = load_model(model) if isinstance(model, (Path, str)) else model
    if not isinstance(model, CycleGAN):
        raise LabkitError("Only a CycleGAN can go back to the public reference, no DeviationGAN or single generator.")
    settings = dict(model.settings)
    if settings["generator"] == "resnet_9blocks_narrow":  # the reference's network with half the filters
        settings |= {"generator": "resnet_9blocks", "ngf": max(1, settings["ngf"] // 2)}
    for setting, known in (("generator", GENERATORS), ("norm", NORMS)):
        if settings[setting] not in known:
            raise LabkitError(
                f"{setting}={settings[setting]!r}: the public reference has no such networks, only those of "
                f"{', '.join(known)}. An ONNX file can hold any generator: labkit export model.onnx"
            )
    return model, settings
