"""Exported files give PyTorch's pictures at every size, say what they take, and are written only if they are right."""

import json

import onnx
import onnxruntime
import pytest
import safetensors.torch
import torch

import labkit
from labkit.networks.codes import CodeGenerator, Decoder, Encoder, Translator
from labkit.networks.generators import UnetGenerator, make_generator
from labkit.networks.light import inverted_block
from labkit.networks.resnet import ResnetGenerator
from labkit.training import export as exporting

# As the full ones, with fewer blocks and levels: it takes seconds to trace nine of either.
GENERATORS = {
    "U-Net, batch norm": lambda: used(UnetGenerator(5, 2, "batch")),
    "inverted, resized": lambda: ResnetGenerator(1, 4, "instance_blocks", inverted_block, resize=True),
    "one generator": lambda: CodeGenerator(Encoder(2), Translator(8, 1), Decoder(2)),
}


def used(network):
    """With running statistics other than those of a new network, and in training mode."""
    for _ in range(3):
        network(torch.rand(2, 3, 128, 256))
    return network


class Wrong(ResnetGenerator):
    """Computes something else as soon as it is traced."""

    def forward(self, picture):
        result = super().forward(picture)
        return result + 0.01 if torch.compiler.is_exporting() else result


def run_onnx(path, pictures):
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    return torch.from_numpy(session.run(None, {"picture": pictures.numpy()})[0])


@pytest.mark.slow
@pytest.mark.parametrize("kind", GENERATORS)
def test_an_onnx_file_gives_pytorch_s_pictures_at_every_size(tmp_path, kind):
    torch.manual_seed(0)
    network = GENERATORS[kind]()
    assert labkit.export(network, tmp_path / "model.onnx") < 1e-4
    was_training = network.training
    side = network.min_size
    for pictures in (torch.rand(3, 3, side, side + network.size_multiple), torch.rand(1, 3, 5 * side, side)):
        expected = labkit.models.run_network(network, pictures)
        assert (run_onnx(tmp_path / "model.onnx", pictures) - expected).abs().max() < 1e-4
    assert network.training == was_training, "the network is left in the mode it was in"


@pytest.mark.slow
def test_a_checkpoint_of_the_reference_s_form_becomes_one_file_that_says_which_sizes_it_takes(tmp_path):
    torch.manual_seed(0)
    network = make_generator("resnet_3blocks", 4)
    torch.save(network.state_dict(), tmp_path / "latest_net_G.pth")
    assert labkit.export(tmp_path / "latest_net_G.pth", tmp_path / "new" / "model.onnx") < 1e-4
    assert [path.name for path in (tmp_path / "new").iterdir()] == ["model.onnx"], "the weights are in it"
    pictures = torch.rand(1, 3, 36, 60)
    expected = labkit.models.run_network(network, pictures)
    assert (run_onnx(tmp_path / "new" / "model.onnx", pictures) - expected).abs().max() < 1e-4
    file = onnx.load(tmp_path / "new" / "model.onnx")
    about = {entry.key: entry.value for entry in file.metadata_props}
    assert (about["size_multiple"], about["min_size"]) == ("4", "8")
    (picture,), (translation,) = file.graph.input, file.graph.output
    assert (picture.name, translation.name) == ("picture", "translation")
    sides = [side.dim_param or side.dim_value for side in picture.type.tensor_type.shape.dim]
    assert sides == ["batch", 3, "4*height", "4*width"]


@pytest.mark.slow
def test_a_program_takes_every_size_that_the_network_takes(tmp_path):
    network = GENERATORS["U-Net, batch norm"]()
    assert labkit.export(network, tmp_path / "model.pt2") < 1e-5
    about = {"labkit.json": ""}
    program = torch.export.load(tmp_path / "model.pt2", extra_files=about).module()
    assert json.loads(about["labkit.json"])["min_size"] == str(network.min_size)
    pictures = torch.rand(1, 3, network.min_size, 3 * network.min_size)
    assert torch.allclose(program(pictures), labkit.models.run_network(network, pictures), atol=1e-5)


def test_weights_are_the_network_s_under_its_names(tmp_path, tiny):
    model = tiny(norm="batch")
    labkit.export(model.double(), tmp_path / "weights.safetensors", "BtoA")
    tensors = safetensors.torch.load_file(tmp_path / "weights.safetensors")
    weights = model.G_B.state_dict()
    assert tensors.keys() == weights.keys()
    assert all(torch.equal(tensor, weights[name].to(tensor.dtype)) for name, tensor in tensors.items())
    assert next(model.G_B.parameters()).dtype == torch.float64, "the model keeps its type"


def test_a_wrong_file_is_refused_and_the_older_one_kept(tmp_path):
    (tmp_path / "model.pt2").write_text("older")
    with pytest.raises(labkit.LabkitError, match="not written.*32x32.*differs from PyTorch by 1.0e-02"):
        labkit.export(Wrong(1, 2), tmp_path / "model.pt2")
    assert [path.read_text() for path in tmp_path.iterdir()] == ["older"]


def test_what_is_no_number_is_wrong(tmp_path, monkeypatch):
    monkeypatch.setitem(exporting.WRITERS, ".onnx", lambda network, about: (b"", lambda x: network(x) * float("nan")))
    with pytest.raises(labkit.LabkitError, match="not written.*by nan"):
        labkit.export(ResnetGenerator(1, 2), tmp_path / "model.onnx")


def test_the_command_writes_a_checked_file(tmp_path, call, tiny, fruit):
    labkit.fit(labkit.make_step(tiny()), fruit, 1, checkpoint=tmp_path / "run", sample_every=100)
    status, out, _ = call("export", "--run", tmp_path / "run", tmp_path / "new" / "model.pt2")
    assert status == 0 and "from PyTorch, in pictures of two sizes" in out
    assert (tmp_path / "new" / "model.pt2").is_file()
