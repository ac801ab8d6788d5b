"""Weights come from another run or the public reference, in a run new in all else."""

import pytest
import torch
from killing import same_weights

import labkit
from labkit.errors import CheckpointError
from labkit.training import checkpoints

SMALL = dict(generator="resnet_6blocks", ngf=2, ndf=2)


@pytest.fixture
def trained(train, tmp_path):
    """The folder of a run of two steps that kept both."""
    train(2, tmp_path / "first", labkit.KeepEvery(1))
    return tmp_path / "first"


def test_weights_and_nothing_else_come_from_another_run(tiny, fruit, trained):
    other = labkit.fruit(n=6, size=16, seed=9)
    for source, step in ((trained, 2), (trained / checkpoints.FILE, 2), (checkpoints.kept_file(trained, 1), 1)):
        model = tiny(lambda_a=5.0, pool_size=3, gan_mode="vanilla")
        random = torch.get_rng_state()
        labkit.init_from(model, source)
        assert torch.equal(torch.get_rng_state(), random)
        assert same_weights(model, labkit.load_model(trained, step=step))
    run = labkit.fit(labkit.make_step(model), other, 1, checkpoint=trained.parent / "second")
    assert run.done == 1 and len(run.losses["G_A"]) == 1


DIFFERENT = [
    (dict(ngf=6, norm="batch", lambda_b=1.0), "ngf=4 there, 6 here; norm='instance' there, 'batch' here"),
    (dict(norm="instance_blocks"), "norm='instance' there, 'instance_blocks' here"),
    (dict(discriminator="basic"), "discriminator='n_layers' there, 'basic' here"),
]


@pytest.mark.parametrize(("settings", "said"), DIFFERENT)
def test_arguments_in_which_networks_differ_are_named(tiny, trained, settings, said):
    with pytest.raises(CheckpointError) as refused:
        labkit.init_from(tiny(**settings), trained)
    with pytest.raises(CheckpointError, match="kind='CycleGAN' there, 'DeviationGAN' here"):
        labkit.init_from(labkit.DeviationGAN(ngf=2, ndf=2, blocks=1), trained)
    named = str(refused.value).partition("model: ")[2].partition(". Use")[0]
    assert sorted(named.split("; ")) == sorted(said.split("; "))


@pytest.mark.parametrize("norm", ["instance", "batch"])
@pytest.mark.parametrize("change", [dict, lambda weights: {f"module.{n}": w for n, w in weights.items()}])
def test_the_references_weights_start_a_run_in_any_form(tmp_path, norm, change):
    model = labkit.CycleGAN(**SMALL, norm=norm)
    for name, network in model.named_children():
        torch.save(change(network.state_dict()), tmp_path / f"latest_net_{name}.pth")
    new = labkit.CycleGAN(**SMALL, norm=norm, lambda_identity=0.0)
    assert not same_weights(new, model)
    labkit.init_from(new, tmp_path)
    assert same_weights(new, model)
    assert same_weights(labkit.load_generator(tmp_path / "latest_net_G_B.pth"), model.G_B)


def test_a_published_generator_starts_one_direction(tmp_path):
    published, new, same = (labkit.CycleGAN(**SMALL) for _ in range(3))
    same.load_state_dict(new.state_dict())
    file = tmp_path / "latest_net_G.pth"
    torch.save(published.G_A.state_dict(), file)
    for path in (file, tmp_path):
        assert labkit.init_from(new, path) == ["G_A"]
        assert same_weights(new.G_A, published.G_A)
        assert all(same_weights(getattr(new, name), getattr(same, name)) for name in ("G_B", "D_A", "D_B"))
        new.load_state_dict(same.state_dict())
    discriminator = tmp_path / "latest_net_D.pth"
    torch.save(published.D_A.state_dict(), discriminator)
    with pytest.raises(CheckpointError, match="the weights are of other networks"):
        labkit.init_from(new, discriminator)


def test_what_is_missing_is_said(tmp_path, tiny):
    model = labkit.CycleGAN(**SMALL)
    torch.save(model.G_A.state_dict(), tmp_path / "latest_net_G_A.pth")
    with pytest.raises(CheckpointError, match="latest_net_G_B.pth: there is no checkpoint here"):
        labkit.init_from(model, tmp_path)
    with pytest.raises(CheckpointError, match="there is no checkpoint here"):
        labkit.init_from(tiny(), tmp_path / "nowhere")


QUICK = ["--size", "16", "--workers", "0", "--device", "cpu", "--no-tensorboard"]


def test_the_command_line_starts_from_weights_once(call, tmp_path):
    call("train", "--out", tmp_path / "a", *QUICK, "--ngf", "4", "--steps", 2)
    start = ("train", "--out", tmp_path / "b", *QUICK, "--ngf", "4", "--init-from", tmp_path / "a", "--lr", "1e-12")
    status, said, _ = call(*start, "--steps", 1)
    assert status == 0 and "G_A, G_B, D_A, D_B\n" in said and "random" not in said
    old, new = (labkit.load_model(tmp_path / name).parameters() for name in "ab")
    assert all(torch.allclose(*pair, atol=1e-9) for pair in zip(new, old, strict=True))
    status, said, _ = call(*start, "--steps", 2)
    assert status == 0 and "2 steps done" in said


def test_the_command_line_says_which_networks_are_not_loaded(call, tmp_path):
    torch.save(labkit.CycleGAN(**SMALL).G_A.state_dict(), file := tmp_path / "latest_net_G.pth")
    small = ["--generator", "resnet_6blocks", "--norm", "instance", "--ngf", "2", "--ndf", "2", "--steps", "1"]
    status, said, error = call("train", "--out", tmp_path / "run", *QUICK, *small, "--init-from", file)
    assert status == 0 and f"{file}: G_A. G_B, D_A, D_B start from random weights\n" in said, error
