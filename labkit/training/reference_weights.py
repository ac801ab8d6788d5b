"""Networks of the public reference, github.com/junyanz/pytorch-CycleGAN-and-pix2pix: its files, read."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from labkit.errors import CheckpointError, explained
from labkit.models import CycleGAN
from labkit.models.model import Model
from labkit.networks.generators import make_generator
from labkit.networks.layers import Generator
from labkit.training import checkpoints

NETWORKS = ("G_A", "G_B", "D_A", "D_B")
# The settings that decide which networks a model has, of a CycleGAN and of a DeviationGAN.
ARCHITECTURE = {"generator", "discriminator", "ngf", "ndf", "n_layers", "norm", "channels_a", "channels_b"}
ARCHITECTURE |= {"blocks", "translators", "autoencoders", "judged"}

Weights = dict[str, Tensor]


def load_generator(path: Path | str, device: torch.device | str = "cpu") -> Generator:
    """A ResNet generator the public reference saved or published ("latest_net_G.pth"), in evaluation mode.

    Its kind is read off the names of its weights. For a U-Net name it: ``model = labkit.CycleGAN("unet_256")``,
    ``labkit.init_from(model, path)``, ``model.G_A``. The file may have been saved on several GPUs, with ``module.``
    before each name. One with dropout, which the reference's CycleGAN does not have by default, is refused.

    Raises:
        CheckpointError: the file is missing or damaged, or holds no such generator.
    """
    weights = _read_weights(path, device)
    others = "A U-Net is loaded by labkit.init_from(labkit.CycleGAN('unet_256'), path)."
    with explained(f"{path}: not a ResNet generator of the public reference", others, CheckpointError):
        generator = make_generator(**_generator_settings(weights))
        _load_into(generator.to(device), weights)
    return generator.eval()


def init_from(model: Model, path: Path | str) -> list[str]:
    """Loads the weights of a trained model into a new one, and nothing else: a run with it begins at step 0.

    Optimisers, pools and schedule are new, and so are pictures and all settings that do not concern the networks.

    Args:
        model: of the same kind and with the same networks. Its weights are replaced.
        path: a run's folder, its checkpoint or one that it kept, or a folder in which the public reference saved
            ``latest_net_G_A.pth``, ``..._G_B.pth``, ``..._D_A.pth`` and ``..._D_B.pth``. For a CycleGAN also the one
            generator of a model that the reference published, ``latest_net_G.pth`` or its folder: it becomes G_A, from
            A to B, and the other networks stay as they are.

    Returns:
        the names of the networks whose weights were loaded.

    Raises:
        CheckpointError: a file is missing or damaged, or the networks differ.
    """
    path = Path(path)
    with explained(f"{path}: the weights are of other networks", "Make the model as it was.", CheckpointError):
        if isinstance(model, CycleGAN) and (files := _reference_files(path)):
            for name, file in files.items():
                _load_into(getattr(model, name), _read_weights(file))
            return list(files)
        state = checkpoints.load(path)
        saved = {name: state["settings"].get(name) for name in model.settings if name in ARCHITECTURE}
        wanted = {name: model.settings[name] for name in saved}
        checkpoints.check_settings(path, "model", {"kind": state["kind"], **saved}, {"kind": model.kind, **wanted})
        model.load_state_dict(state["step"]["model"])
        return [name for name, _ in model.named_children()]


def _reference_files(path: Path) -> dict[str, Path]:
    """The files of the public reference at a path, by network. There are none for a run of labkit."""
    if any(path.glob("latest_net_?_?.pth")):
        return {name: path / f"latest_net_{name}.pth" for name in NETWORKS}
    generator = path / "latest_net_G.pth" if path.is_dir() else path
    return {"G_A": generator} if generator.suffix == ".pth" and generator.exists() else {}


def _read_weights(path: Path | str, device: torch.device | str = "cpu") -> Weights:
    """The weights of a network that the public reference saved, under the names that they have on one GPU.

    Raises:
        CheckpointError: the file is missing or damaged, or holds no weights.
    """
    weights = checkpoints.read(path, device)
    if not isinstance(weights, dict) or not all(isinstance(weight, Tensor) for weight in weights.values()):
        raise CheckpointError(f"{path}: no weights of a generator. For a run of labkit use labkit.load_model.")
    # Saved on several GPUs, names begin with "module.", from nn.DataParallel.
    return {name.removeprefix("module."): weight for name, weight in weights.items()}


def _load_into(network: nn.Module, weights: Weights) -> None:
    """Loads weights that `_read_weights` read. Raises `RuntimeError` if they are of another network."""
    if not any(isinstance(layer, nn.BatchNorm2d) for layer in network.modules()):
        # Checkpoints of PyTorch before 0.4.1 hold running statistics that instance norm does not have.
        statistics = (".running_mean", ".running_var", ".num_batches_tracked")
        weights = {name: weight for name, weight in weights.items() if not name.endswith(statistics)}
    network.load_state_dict(weights)


def _generator_settings(weights: Weights) -> dict[str, Any]:
    """The arguments of `make_generator` for the ResNet that these weights belong to.

    Raises:
        LookupError: a ResNet's names are missing.
    """
    width, inputs = weights["model.1.weight"].shape[:2]
    norm = "batch" if "model.2.weight" in weights else "instance" if "model.1.bias" in weights else "none"
    blocks = len({name.split(".")[1] for name in weights if "conv_block" in name})
    *_, last = (weight for name, weight in weights.items() if name.endswith("weight"))
    return {"network": f"resnet_{blocks}blocks", "width": width, "norm": norm, "channels": (inputs, last.shape[0])}
