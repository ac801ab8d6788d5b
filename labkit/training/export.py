"""Trained networks for use without labkit: as an ONNX file, as a program of torch.export, or as weights."""

from __future__ import annotations

import copy
import io
import json
import math
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.fx.experimental import _config as shapes_config

import labkit
from labkit.errors import LabkitError
from labkit.models.model import Model
from labkit.networks.layers import Generator, channels_of
from labkit.training.checkpoints import load_model
from labkit.training.reference_weights import load_generator
from labtrace.errors import check_known
from labtrace.files import atomic_write

LIMIT = 1e-3  # largest difference from PyTorch that an exported network may have: an eighth of a level of grey
SMALLEST = 32  # pixels; in smaller pictures instance norm divides by the spread of few numbers, and magnifies rounding

Runner = Callable[[Tensor], Tensor]  # runs what was exported: (B, C, H, W) in [-1, 1] in and out


def export(model: Model | Generator | Path | str, path: Path | str, direction: str = "AtoB") -> float:
    """Writes one direction of a trained model into a file that other programs can run or load.

    The suffix of `path` chooses the form. ``.onnx`` is for ONNX Runtime and others, ``.pt2`` is a program for
    `torch.export.load`, and ``.safetensors`` holds the weights alone, in float32 and under the names they have in
    PyTorch. ONNX files and programs map (B, C, H, W), float32 in [-1, 1], to pictures of the same size. They take any
    batch, and any height and width that the network takes: multiples of `size_multiple`, at least `min_size`, both
    named in the file's metadata. Batch norm and dropout are in evaluation mode, as in `labkit.translate`.

    Before the file is written, the exported network runs on noise of two sizes, and is compared with PyTorch.

    Args:
        model: a model, a generator, a run's folder, its checkpoint, or a generator of the public reference (.pth).
        path: the file to write. An older one is replaced. Missing folders are made.
        direction: "AtoB" or "BtoA", ignored for a single generator.

    Returns:
        the largest difference from PyTorch, at any of the two sizes.

    Raises:
        LabkitError: the suffix or the direction is unknown, the results differ from PyTorch's by more than 1e-3, or the
            file cannot be written. No file is left then, and an older one is kept.
        CheckpointError: the run or the checkpoint cannot be read.

    Example:
        >>> model = labkit.CycleGAN("resnet_3blocks", ngf=4, ndf=4)
        >>> labkit.export(model, "apples_to_oranges.safetensors")
        0.0
    """
    path = Path(path)
    suffix = path.suffix.lower()
    check_known("suffix", suffix, WRITERS)
    if isinstance(model, (Path, str)):
        model = load_generator(model) if Path(model).suffix == ".pth" else load_model(model)
    network = model.translator(direction) if isinstance(model, Model) else model
    # A copy, for the caller continues with the model in its mode, on its device and in its memory format.
    network = copy.deepcopy(network).to("cpu", torch.float32).to(memory_format=torch.contiguous_format)
    network = network.eval().requires_grad_(False)
    sizes = {"size_multiple": str(network.size_multiple), "min_size": str(network.min_size)}
    about = {
        "made_by": f"labkit {labkit.__version__}",
        "values": f"{channels_of(network)} channels in [-1, 1]",
        **sizes,
    }
    if isinstance(model, Model):  # how to make its network again
        about |= {"direction": direction, "kind": model.kind, "settings": json.dumps(model.settings)}
    content, run = WRITERS[suffix](network, about)
    difference = _check(network, run, path)
    with atomic_write(path) as part:
        part.write_bytes(content)
    return difference


def _example(network: Generator) -> tuple[tuple[Tensor], tuple[dict]]:
    """A batch to trace the network with, and which of its sides may have other lengths."""
    multiple, smallest = network.size_multiple, math.ceil(network.min_size / network.size_multiple)
    height, width = (torch.export.Dim(name, min=smallest) for name in ("height", "width"))
    # Neither 1 nor equal lengths, which a tracer could take for the network's own.
    pictures = torch.zeros(2, channels_of(network), multiple * (smallest + 1), multiple * (smallest + 2))
    sides = (height, width) if multiple == 1 else (multiple * height, multiple * width)
    return (pictures,), ({0: torch.export.Dim("batch"), 2: sides[0], 3: sides[1]},)


def _onnx(network: Generator, about: dict[str, str]) -> tuple[bytes, Runner]:
    import onnxruntime
    import onnxscript  # noqa: F401  # PyTorch's exporter needs it, and says less clearly that it is missing

    example, lengths = _example(network)
    # One file, without a second one for the weights. The warnings are of the exporter to its developers.
    options: dict[str, Any] = dict(dynamo=True, external_data=False, verbose=False)
    with warnings.catch_warnings(action="ignore"):
        program = torch.onnx.export(
            network, example, dynamic_shapes=lengths, input_names=["picture"], output_names=["translation"], **options
        )
    assert program is not None  # as it is for other options
    program.model.metadata_props.update(about)
    content = program.model_proto.SerializeToString()
    session = onnxruntime.InferenceSession(content, providers=["CPUExecutionProvider"])
    return content, lambda pictures: torch.from_numpy(session.run(None, {"picture": pictures.numpy()})[0])


def _program(network: Generator, about: dict[str, str]) -> tuple[bytes, Runner]:
    example, lengths = _example(network)
    # Without this setting, which torch.onnx uses too, a U-Net's program refuses the size at which its innermost level
    # has one pixel: the very size it is built for.
    with shapes_config.patch(backed_size_oblivious=True):  # type: ignore[attr-defined]
        program = torch.export.export(network, example, dynamic_shapes=lengths)
    file = io.BytesIO()
    torch.export.save(program, file, extra_files={"labkit.json": json.dumps(about)})
    file.seek(0)
    return file.getvalue(), load_program(file)


def load_program(file: Path | io.BytesIO) -> Runner:
    """The network in a ``.pt2`` file, ready to be called."""
    with warnings.catch_warnings():  # PyTorch 2.11 leaves the weights in the file's bytes, and warns of writing there
        warnings.filterwarnings("ignore", "The given buffer is not writable", UserWarning)
        return torch.export.load(file).module()


def _weights(network: Generator, about: dict[str, str]) -> tuple[bytes, Runner]:
    import safetensors.torch

    weights = {name: tensor.clone() for name, tensor in network.state_dict().items()}
    return safetensors.torch.save(weights, about), network  # there is nothing else to run


WRITERS = {".onnx": _onnx, ".pt2": _program, ".safetensors": _weights}


@torch.no_grad()
def _check(network: Generator, run: Runner, path: Path) -> float:
    """The largest difference from PyTorch, over batches of noise of the smallest size and of a wide one.

    Raises:
        LabkitError: it is above the limit.
    """
    random, multiple, differences = torch.Generator().manual_seed(0), network.size_multiple, []
    side = math.ceil(max(network.min_size, SMALLEST) / multiple) * multiple
    for height, width in ((side, side), (side + multiple, side + 3 * multiple)):
        pictures = torch.rand(2, channels_of(network), height, width, generator=random) * 2 - 1
        differences.append((run(pictures) - network(pictures)).abs().max().item())
        if not differences[-1] <= LIMIT:
            raise LabkitError(
                f"{path}: not written. On {height}x{width} pixels the exported network differs from PyTorch by "
                f"{differences[-1]:.1e}. Try another form (.onnx, .pt2), or other versions of the packages."
            )
    return max(differences)
