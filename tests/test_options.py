"""Every argument of a model is an option of the command line, and only of the models that have it."""

import dataclasses
import inspect
import re

import pytest

import labkit
from labkit import cli, recipes
from labkit.commands import options
from labkit.models import MODELS

OTHERS = {"batch_size", "size", "model_kind", "device"}
OPTIONS = {field.name: field.type.__metadata__[0] for field in dataclasses.fields(options.Choice)}


def test_every_argument_of_every_model_is_an_option():
    arguments = {name for model in MODELS.values() for name in inspect.signature(model).parameters}
    assert set(OPTIONS) - OTHERS == arguments


@pytest.mark.parametrize("kind", MODELS)
def test_help_states_the_defaults_that_models_and_recipes_have(kind):
    """Help should not wait for torch, so that it repeats the models' defaults."""
    fruit = recipes.find("fruit", kind).model
    for name, argument in inspect.signature(MODELS[kind]).parameters.items():
        said = OPTIONS[name].show_default
        if name in fruit:
            assert f"fruit {fruit[name]}" in said
        if "the paper's" not in said:
            assert str(argument.default) in said, name


@pytest.mark.parametrize(
    ("kind", "given"),
    [
        (
            "CycleGAN",
            dict(
                discriminator="pixel", gan_mode="vanilla", lambda_a=3.0, lambda_b=5.0, lambda_identity=0.0, pool_size=7
            ),
        ),
        ("CycleGAN", dict(n_layers=1, generator="unet_128", norm="instance", ngf=2, ndf=3, pool_size=7)),
        (
            "DeviationGAN",
            dict(blocks=1, translators=2, autoencoders=2, stage="translation", judged="pictures", consistency="cycle"),
        ),
        ("DeviationGAN", dict(lambda_deviation=2.0, lambda_identity=0.5, lambda_cycle=3.0, pool_size=0, ndf=2)),
    ],
)
def test_what_is_given_reaches_the_model(call, tmp_path, monkeypatch, kind, given):
    made, make = [], options.Choice.model

    def seen(self, recipe):
        made.append(make(self, recipe))
        raise labkit.LabkitError("seen")  # a step need not be profiled for that

    monkeypatch.setattr(options.Choice, "model", seen)
    arguments = [part for name, value in given.items() for part in (options.as_option(name), value)]
    _, _, error = call("profile", "--out", tmp_path / "trace.json", "--model", kind, *arguments, "--device", "cpu")
    assert "seen" in error
    assert made[0].settings == {**MODELS[kind]().settings, **recipes.find("fruit", kind).model, **given}


@pytest.mark.parametrize(
    ("command", "message"),
    [
        (
            ["--model", "DeviationGAN", "--lambda-a", "3"],
            "--lambda-a: a DeviationGAN has no such.*--lambda-cycle",
        ),
        (["--judged", "codes"], "--judged: a CycleGAN has no such argument.*--gan-mode"),
        (["--discriminator", "basic", "--n-layers", "2"], "--n-layers counts the layers of --discriminator n_layers"),
        (["--discriminator", "patch"], "discriminator='patch' is unknown"),
        (["--lambda-b", "inf"], "lambda_b=inf is negative or not finite"),
        (["--model", "DeviationGAN", "--consistency", "cycle"], "set translators=2"),
    ],
)
def test_what_does_not_belong_to_the_model_is_refused_by_its_name(call, tmp_path, command, message):
    status, _, error = call("profile", "--out", tmp_path / "trace.json", *command)
    assert status == 1 and re.search(message, error), error


def test_profile_and_compare_have_them_too():
    for command in (cli.train, cli.profile, cli.compare):
        assert set(OPTIONS) <= set(inspect.signature(command).parameters)


def test_a_recipe_gives_way_to_options():
    choice = options.Choice(device="cpu", lambda_a=2.0, gan_mode="vanilla")
    model = choice.model(choice.recipe("fruit"))
    assert (model.lambda_a, model.gan_mode) == (2.0, "vanilla") and isinstance(model, labkit.CycleGAN)
    assert model.settings["generator"] == recipes.FRUIT.model["generator"]
