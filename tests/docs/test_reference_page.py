"""docs/reference.md names every option of the public reference, and only options that labkit has."""

import re
from pathlib import Path

import typer

import labkit
from labkit import recipes
from labkit.cli import app

PAGE = (Path(__file__).parents[2] / "docs" / "reference.md").read_text()
BASE = """
    dataroot name gpu_ids checkpoints_dir model input_nc output_nc ngf ndf netD netG n_layers_D norm init_type init_gain
    no_dropout dataset_mode direction serial_batches num_threads batch_size load_size crop_size max_dataset_size
    preprocess no_flip display_winsize epoch load_iter verbose suffix use_wandb wandb_project_name
"""
TRAIN = """
    display_freq display_ncols display_id display_server display_env display_port update_html_freq print_freq no_html
    save_latest_freq save_epoch_freq save_by_iter continue_train epoch_count phase n_epochs n_epochs_decay beta1 lr
    gan_mode pool_size lr_policy lr_decay_iters
"""
TEST = "results_dir aspect_ratio eval num_test"
OF_MODELS = "lambda_A lambda_B lambda_identity lambda_L1 model_suffix lambda_regression new_dataset_option"
REFERENCE = " ".join((BASE, TRAIN, TEST, OF_MODELS)).split()

# Defaults of the reference's CycleGAN, by the argument of labkit.CycleGAN.
DEFAULTS = """
    generator=resnet_9blocks discriminator=basic ngf=64 ndf=64 n_layers=3 norm=instance channels_a=3 channels_b=3
    lambda_a=10.0 lambda_b=10.0 lambda_identity=0.5 gan_mode=lsgan pool_size=50
"""

ROWS = [
    [cell.strip() for cell in line.strip("|").split("|")]
    for line in PAGE.splitlines()
    if line.startswith("|") and not line.startswith(("|---", "| reference"))
]


def test_every_option_of_the_reference_has_one_place():
    named = [option for row in ROWS for option in re.findall(r"`--(\w+)`", row[0])]
    assert sorted(named) == sorted(REFERENCE)


def test_every_row_has_a_counterpart_that_exists_or_a_reason():
    commands = typer.main.get_command(app).commands
    for left, counterpart, remark in ROWS:
        if counterpart == "-":
            assert remark, left
            continue
        for text in counterpart.split(", "):
            command, option = re.fullmatch(r"`(\w+) (--[\w-]+)`", text).groups()
            assert any(option in parameter.opts for parameter in commands[command].params), text


def test_options_in_the_text_exist():
    """Those with a hyphen are labkit's: the reference has underscores."""
    known = {
        option for command in typer.main.get_command(app).commands.values() for p in command.params for option in p.opts
    }
    assert {option for option in re.findall(r"--[a-z]+(?:-[a-z]+)+", PAGE)} <= known


def test_the_defaults_are_the_reference_s():
    model, photographs = labkit.CycleGAN(), recipes.PHOTOGRAPHS
    assert [f"{name}={value}" for name, value in model.settings.items()] == DEFAULTS.split()
    assert set(model.learning_rates().values()) == {0.0002}
    assert (photographs.size, photographs.decay, photographs.model) == (256, 0.5, {})


def test_the_program_runs_and_changes_the_discriminators_losses_only(batch, monkeypatch, tiny):
    (program,) = re.findall(r"```python\n(.*?)```", PAGE, flags=re.DOTALL)
    plain, model = labkit.make_step(tiny(gan_mode="wgangp"))(*batch()), tiny(gan_mode="wgangp")
    monkeypatch.setattr(labkit, "CycleGAN", lambda gan_mode: model)
    space: dict = {}
    exec(program, space)
    losses = space["step"](*batch())
    assert list(losses) == list(plain)
    assert all((losses[name] == plain[name]) == (name not in ("D_A", "D_B")) for name in plain)
    assert losses["D_A"] > plain["D_A"] and losses["D_B"] > plain["D_B"]
