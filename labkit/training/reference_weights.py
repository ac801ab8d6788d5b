"""Weights that the public reference saved (``latest_net_G_A.pth``): read, and their network told by its names."""

from __future__ import annotations

import re
from pathlib import Path

import torch
from torch import Tensor, nn

from labkit.errors import CheckpointError
from labkit.networks.generators import make_generator
from labkit.networks.layers import Generator
from labkit.networks.resnet import ResnetGenerator
from labkit.training.checkpoints import file_of, first_line, read

Weights = dict[str, Tensor]


def load_generator(path: Path | str, device: torch.device | str = "cpu") -> Generator:
    """A generator the public reference saved or published ("latest_net_G.pth"), in evaluation mode.

    Its kind is read off the names of its weights.

    It may have been saved on several GPUs, with ``module.`` before each name, and it may have dropout, which does
    nothing in a trained network.

    Raises:
        CheckpointError: the file is missing or damaged, or holds no such generator.
    """
    weights = read_weights(path, device)
    try:
        settings = generator_settings(weights)
        blocks = re.fullmatch(r"resnet_(\d+)blocks", settings["generator"])
        generator: Generator
        if blocks:  # any number of them, not only those that have a name
            generator = ResnetGenerator(int(blocks[1]), settings["ngf"], settings["norm"])
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
    kind = "pixel" if "net.0.weight" in weights else "n_layers"
    first = "net" if kind == "pixel" else "model"
    norm = "batch" if f"{first}.3.weight" in weights else "instance" if f"{first}.2.bias" in weights else "none"
    settings = {"discriminator": kind, "ndf": weights[f"{first}.0.weight"].shape[0], "norm": norm}
    if kind == "n_layers":  # between the first convolution and the last
        settings["n_layers"] = sum(weight.dim() == 4 for weight in weights.values()) - 2
    return settings
