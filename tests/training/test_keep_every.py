"""`labkit.KeepEvery`: whole checkpoints of single steps, to translate and export from."""

import pytest
import torch
from safetensors.torch import load_file

import labkit
from labkit.data.images import read_picture, write_picture
from labkit.errors import CheckpointError
from labkit.training import checkpoints


@pytest.fixture
def keep(train):
    return lambda steps, folder: train(steps, folder, labkit.KeepEvery(2), sample_every=1000)


def listing(folder):
    return sorted(path.name for path in (folder / "kept").iterdir())


NAMES = ["000002.pt", "000004.pt"]


def test_each_kept_checkpoint_is_whole_and_has_its_samples(keep, tmp_path):
    keep(5, tmp_path)
    assert listing(tmp_path) == NAMES
    assert checkpoints.load(tmp_path)["done"] == 5
    for at in (2, 4):
        then = keep(at, None).model
        for model in (labkit.load_model(tmp_path, step=at), labkit.load_model(tmp_path / "kept" / f"00000{at}.pt")):
            assert all(map(torch.equal, model.parameters(), then.parameters()))
        assert checkpoints.load(checkpoints.kept_file(tmp_path, at))["done"] == at
        assert (tmp_path / "samples" / f"00000{at}.png").is_file()


@pytest.mark.parametrize("killed", ["before the copy", "while it had its temporary name"])
def test_a_kill_between_checkpoint_and_copy_loses_no_kept_step(keep, tmp_path, killed):
    keep(2, tmp_path)
    kept = tmp_path / "kept" / "000002.pt"
    if killed == "before the copy":
        kept.unlink()
    else:
        kept.rename(kept.with_name(f".part-{kept.name}"))
    keep(4, tmp_path)
    assert listing(tmp_path) == NAMES


def test_a_step_that_cannot_be_kept_ends_the_run_after_it_was_saved(keep, tmp_path):
    (tmp_path / "kept").write_text("in the way")
    with pytest.raises(labkit.LabkitError, match="kept/000002.pt cannot be written"):
        keep(9, tmp_path)
    assert checkpoints.load(tmp_path)["done"] == 3, "the step under way, too"


def test_a_step_that_was_not_kept_is_refused_with_a_list(keep, tmp_path):
    keep(4, tmp_path)
    with pytest.raises(CheckpointError, match=r"3.pt: there is no checkpoint here. The run kept .*02.pt, .*04.pt"):
        labkit.load_model(tmp_path, step=3)
    with pytest.raises(CheckpointError, match=r"000003.pt: there is no .* Was the run ever saved"):
        labkit.load_model(tmp_path / "kepd", step=3)


def test_the_command_line_keeps_translates_and_exports_a_step(call, tmp_path):
    small = ["--size", "16", "--ngf", "2", "--workers", "0", "--device", "cpu", "--no-tensorboard"]
    small += ["--generator", "resnet_6blocks", "--norm", "instance"]
    assert call("train", "--out", tmp_path / "run", *small, "--steps", "3", "--keep-every", "1")[0] == 0
    write_picture(torch.zeros(3, 16, 16, dtype=torch.uint8), tmp_path / "in.png")
    for at in (1, 3):
        out = tmp_path / f"{at}.png"
        assert call("translate", tmp_path / "in.png", out, "--run", tmp_path / "run", "--step", at)[0] == 0
        model = labkit.load_model(tmp_path / "run", step=at)
        labkit.translate(model, tmp_path / "in.png", tmp_path / "expected.png", overwrite=True)
        assert torch.equal(read_picture(out), read_picture(tmp_path / "expected.png"))
    assert call("export", tmp_path / "out.safetensors", "--run", tmp_path / "run", "--step", 2)[0] == 0
    exported, kept = load_file(tmp_path / "out.safetensors"), labkit.load_model(tmp_path / "run", step=2).G_A
    assert all(torch.equal(exported[name], weight) for name, weight in kept.named_parameters())
