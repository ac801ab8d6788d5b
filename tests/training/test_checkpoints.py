"""Checkpoints are whole or refused, run nothing, and take the reference's files."""

import os

import pytest
import torch

import labkit
from labkit.errors import CheckpointError, TrainingError
from labkit.networks.generators import make_generator
from labkit.training import checkpoints


@pytest.fixture
def run(train, tmp_path):
    """A folder with the checkpoint of one step."""
    train(1, tmp_path / "run", sample_every=100)
    return tmp_path / "run"


def test_a_model_is_loaded_to_translate_and_a_step_made_of_it_trains(run):
    model = labkit.load_model(run)
    assert not model.training and not model.translator().training
    labkit.make_step(model)
    assert model.training and model.G_A.training


class Hostile:
    def __reduce__(self):
        return os.mkdir, ("labkit-was-here",)


DAMAGES = [
    (lambda file: file.unlink(), "there is no checkpoint here"),
    (lambda file: file.write_bytes(file.read_bytes()[:-5000]), "this is no checkpoint, or it is damaged"),
    (lambda file: file.write_bytes(b""), "this is no checkpoint, or it is damaged"),
    (lambda file: file.write_text("weights"), "this is no checkpoint, or it is damaged"),
    (lambda file: torch.save({"settings": Hostile(), "step": {}}, file), "mkdir in it could run code"),
    (lambda file: torch.save({"weights": torch.ones(2)}, file), "not a checkpoint of labkit"),
]


@pytest.mark.parametrize(("damage", "message"), DAMAGES)
def test_what_is_no_whole_checkpoint_is_refused(run, monkeypatch, damage, message):
    monkeypatch.chdir(run)
    file = run / checkpoints.FILE
    damage(file)
    with pytest.raises(CheckpointError, match=message) as caught:
        labkit.load_model(run)
    assert str(run) in str(caught.value)
    assert not (run / "labkit-was-here").exists()


def test_weights_that_are_not_finite_are_not_saved(run):
    state = checkpoints.load(run)
    next(iter(state["step"]["model"].values())).fill_(float("nan"))
    before = (run / checkpoints.FILE).read_bytes()
    with pytest.raises(TrainingError, match="not saved"):
        checkpoints.write_checkpoint(state, run)
    assert (run / checkpoints.FILE).read_bytes() == before


@pytest.mark.parametrize("norm", ["instance", "batch", "none"])
@pytest.mark.parametrize("name", ["resnet_9blocks", "resnet_6blocks", "unet_256", "unet_128"])
def test_a_published_resnet_s_kind_is_read_off_its_names_and_a_unet_s_is_given(tmp_path, name, norm):
    generator, file = make_generator(name, 2, norm), tmp_path / "latest_net_G.pth"
    torch.save(generator.state_dict(), file)
    if name.startswith("unet"):
        with pytest.raises(CheckpointError, match=r"A U-Net is loaded by labkit.init_from\("):
            labkit.load_generator(file)
        labkit.init_from(model := labkit.CycleGAN(name, ngf=2, ndf=2, norm=norm), file)
    loaded = model.G_A if name.startswith("unet") else labkit.load_generator(file)
    picture = torch.rand(1, 3, 256, 256)
    assert torch.equal(loaded.eval()(picture), generator.eval()(picture))


@pytest.mark.parametrize("checksums", [True, False])
def test_old_checkpoints_load_with_running_statistics_and_from_before_pytorch_1_6(tmp_path, checksums):
    weights = make_generator("resnet_6blocks", 2).state_dict() | {"model.2.running_mean": torch.zeros(2)}
    torch.save(weights, tmp_path / "old.pth", _use_new_zipfile_serialization=checksums)
    labkit.load_generator(tmp_path / "old.pth")


@pytest.mark.parametrize("content", [{"step": 3}, {"fc.weight": torch.ones(2)}, [torch.ones(1)]])
def test_what_is_no_generator_is_refused(tmp_path, content):
    torch.save(content, tmp_path / "latest_net_G.pth")
    with pytest.raises(CheckpointError, match="generator"):
        labkit.load_generator(tmp_path / "latest_net_G.pth")


def test_a_gpu_that_is_not_there_is_said_to_be_missing(run, monkeypatch):
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 0)
    with pytest.raises(labkit.LabkitError, match="device='cuda': .*device='cpu'"):
        labkit.load_model(run, device="cuda")
