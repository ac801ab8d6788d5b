"""Trained networks for use without labkit: as an ONNX file, as a program of torch.export, or as weights."""

from __future__ import annotations

import copy
import io
import json
import math
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor
from torch.fx.experimental import _config as shapes_config

import labkit
from labkit.errors import LabkitError, check_known
from labkit.files import atomic_write
from labkit.models.model import Model
from labkit.networks.layers import Generator
from labkit.training.checkpoints import load_model
from labkit.training.reference_weights import load_generator

LIMIT = 1e-4  # the largest difference from PyTorch that an exported network may have, in pictures in [-1, 1]
# Height and width of the pictures of the check, in strides from the smallest side. It is no less than 32 pixels: in
# smaller ones instance norm divides by the spread of a handful of numbers, and makes rounding as large as an error.
SIZES = ((0, 0), (0, 2), (1, 0), (2, 1), (1, 3))
SMALLEST, STRIDE = 32, 17  # pixels, at least; 17 shares no divisor with anything a network may be built on

Runner = Callable[[Tensor], Tensor]  # runs what was exported: (B, 3, H, W) in [-1, 1] in and out


class Exported(NamedTuple):
    """A file that `export` wrote: its path, and its largest difference from PyTorch, None where nothing can run it."""

    path: Path
    difference: float | None


def export(model: Model | Generator | Path | str, path: Path | str, direction: str = "AtoB") -> Exported:
    """Writes one direction of a trained model into a file that other programs can run or load.

    The suffix of `path` chooses the form. ``.onnx`` is for ONNX Runtime and others, ``.pt2`` is a program for
    `torch.export.load`, and ``.safetensors`` holds the weights alone, in float32 and under the names they have in
    PyTorch. ONNX files and programs map (B, 3, H, W), float32 in [-1, 1], to a tensor of the same shape. They take any
    batch, and any height and width that the network takes: multiples of `size_multiple`, at least `min_size`, both named in
    the file's metadata. Batch norm and dropout are in evaluation mode, as in `labkit.translate`.

    Before the file is written, the exported network runs on noise of five sizes, and is compared with PyTorch.

    Args:
        model: a model, a generator, a run's folder, its checkpoint, or a generator of the public reference (.pth).
        path: the file to write; an older one is replaced. Missing folders are made.
        direction: "AtoB" or "BtoA"; ignored for a single generator.

    Returns:
        the path, and the largest difference from PyTorch at any of the five sizes. The difference is None for an ONNX
        file if ONNX Runtime is not installed, so that it could not be run.

    Raises:
        LabkitError: the suffix or the direction is unknown, a package is missing, the network cannot be exported, its
            results differ from PyTorch's by more than 1e-4 and rounding does not explain it, or the file cannot be
            written. No file is left then, and an older one is kept.
        CheckpointError: the run or the checkpoint cannot be read.
    """
    path = Path(path)
    suffix = path.suffix.lower()
    check_known("suffix", suffix, WRITERS)
    model = loaded(model)
    network = model.translator(direction) if isinstance(model, Model) else model
    # A copy, for the caller goes on with the model in its mode, on its device and in its memory format.
    network = copy.deepcopy(network).to("cpu", torch.float32).to(memory_format=torch.contiguous_format)
    network = network.eval().requires_grad_(False)
    sizes = {"size_multiple": str(network.size_multiple), "min_size": str(network.min_size)}
    about = {"made_by": f"labkit {labkit.__version__}", "values": "RGB in [-1, 1]", **sizes}
    if isinstance(model, Model):  # how to make its network again
        about |= {"direction": direction, "kind": model.kind, "settings": json.dumps(model.settings)}
    try:
        content, run = WRITERS[suffix](network, about)
        difference = None if run is None else _check(network, run, path)
    except LabkitError:
        raise
    except ImportError as error:
        raise LabkitError(
            f"{suffix} files need {error.name}, which labkit does not install by itself. Install what export needs: "
            "pip install onnx onnxscript onnxruntime safetensors"
        ) from error
    except Exception as error:  # a custom network can fail in any way
        first = str(error).strip().partition("\n")[0][:200]
        raise LabkitError(
            f"{path}: this network cannot be exported ({type(error).__name__}: {first}). "
            "torch.export has to be able to trace its forward method; .safetensors takes the weights of any network."
        ) from error
    with atomic_write(path) as part:
        part.write_bytes(content)
    return Exported(path, difference)


def loaded(model: Model | Generator | Path | str) -> Model | Generator:
    """The model or generator itself, or the one of this folder or file, on the CPU."""
    if not isinstance(model, (Path, str)):
        return model
    return load_generator(model) if Path(model).suffix == ".pth" else load_model(model)


def _example(network: Generator) -> tuple[tuple[Tensor], tuple[dict]]:
    """A batch to trace the network with, and which of its sides may have other lengths."""
    multiple, least = network.size_multiple, math.ceil(network.min_size / network.size_multiple)
    height, width = (torch.export.Dim(name, min=least) for name in ("height", "width"))
    # Neither 1 nor equal lengths, which a tracer could take for the network's own.
    pictures = torch.zeros(2, 3, multiple * (least + 1), multiple * (least + 2))
    sides = (height, width) if multiple == 1 else (multiple * height, multiple * width)
    return (pictures,), ({0: torch.export.Dim("batch"), 2: sides[0], 3: sides[1]},)


def _onnx(network: Generator, about: dict[str, str]) -> tuple[bytes, Runner | None]:
    import onnxscript  # noqa: F401  # PyTorch's exporter needs it, and says less clearly that it is missing

    example, lengths = _example(network)
    with warnings.catch_warnings(action="ignore"):  # of the exporter to its developers
        program = torch.onnx.export(
            network,
            example,
            dynamo=True,
            dynamic_shapes=lengths,
            input_names=["picture"],
            output_names=["translation"],
            external_data=False,  # one file, not a second one with the weights beside it
            verbose=False,
        )
    assert program is not None
    program.model.metadata_props.update(about)
    content = program.model_proto.SerializeToString()
    try:
        import onnxruntime
    except ImportError:
        return content, None
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
    return file.getvalue(), torch.export.load(file).module()


def _weights(network: Generator, about: dict[str, str]) -> tuple[bytes, Runner]:
    import safetensors.torch

    content = safetensors.torch.save({name: tensor.clone() for name, tensor in network.state_dict().items()}, about)
    other = copy.deepcopy(network)
    other.load_state_dict(safetensors.torch.load(content))
    return content, other


WRITERS: dict[str, Callable[[Generator, dict[str, str]], tuple[bytes, Runner | None]]] = {
    ".onnx": _onnx,
    ".pt2": _program,
    ".safetensors": _weights,
}


def checked_sizes(network: Generator) -> list[tuple[int, int]]:
    """Height and width of the five pictures that a file is checked with, each a size that the network takes."""
    multiple, smallest = network.size_multiple, max(network.min_size, SMALLEST)

    def side(strides: int) -> int:
        return math.ceil((smallest + strides * max(multiple, STRIDE)) / multiple) * multiple

    return [(side(rows), side(columns)) for rows, columns in SIZES]


@torch.no_grad()
def _check(network: Generator, run: Runner, path: Path) -> float:
    """The largest difference from PyTorch, over batches of noise of five sizes.

    Raises:
        LabkitError: it is above the limit, and above what rounding does to PyTorch's own result.
    """
    random, largest = torch.Generator().manual_seed(0), 0.0
    for number, size in enumerate(checked_sizes(network)):
        pictures = torch.rand(2 if number == 0 else 1, 3, *size, generator=random) * 2 - 1
        expected, found = network(pictures), run(pictures)
        where = f"{path}: not written. On a picture of {size[0]}x{size[1]} pixels the exported network"
        if found.shape != expected.shape:
            raise LabkitError(f"{where} gives {tuple(found.shape)}, and PyTorch {tuple(expected.shape)}.")
        difference = (found - expected).abs().max().item()
        if not difference <= LIMIT:
            # A network with large weights amplifies rounding: PyTorch in float32 then differs as much from float64.
            rounding = expected - copy.deepcopy(network).double()(pictures.double())
            if not difference <= 10 * rounding.abs().max().item():
                raise LabkitError(
                    f"{where} differs from PyTorch by {difference:.1e}, and rounding does not explain it. Try another "
                    "version of the packages onnx, onnxscript and onnxruntime, or another form: .onnx, .pt2, "
                    ".safetensors."
                )
        largest = max(largest, difference)
    return largest
