"""Every argument of a model is an option of the command line, and only of the models that have it."""

import inspect
import os
import subprocess
import sys

import pytest
import typer
from torch.distributed.run import get_args_parser

from labkit import cli, recipes
from labkit.commands import Setup, defaults_of, model_arguments, parser
from labkit.commands.training import defaults, train
from labkit.models import MODELS
from labtrace.cli import as_option

COMMANDS = typer.main.get_command(cli.app).commands


@pytest.mark.parametrize("kind", MODELS)
def test_a_model_takes_the_fields_of_its_settings_in_their_order(kind):
    arguments = inspect.signature(MODELS[kind]).parameters.values()
    assert {each.name: each.default for each in arguments} == defaults_of(kind)
    assert list(MODELS[kind]().settings) == list(defaults_of(kind))


def test_every_help_is_a_whole_sentence_at_least():
    """And it is the whole text: an argument's second value is not cut off."""
    for command in COMMANDS.values():
        assert all(parameter.help.endswith((".", ")")) for parameter in command.params), command.name
    assert "codes or pictures" in model_arguments()["judged"][1]
    assert "generators. DeviationGAN: Filters" in model_arguments()["ngf"][1], "each model's meaning of an argument"


@pytest.mark.parametrize("command", [(), *((name,) for name in COMMANDS)])
def test_no_flag_is_shown_with_the_type_of_a_value(call, command):
    status, said, _ = call(*command, "--help")
    typed = [line for line in said.splitlines() if "bool" in line.lower()]
    assert status == 0 and "Show this message" in said
    assert all("--help" in line or "-completion" in line for line in typed), "only those that typer adds"


def test_tab_completes_an_option_in_bash():
    asked = {"_LABKIT_COMPLETE": "complete_bash", "COMP_WORDS": "labkit train --pr", "COMP_CWORD": "2"}
    program = "import sys; sys.argv = ['labkit']; import labkit.cli; labkit.cli.main()"
    done = subprocess.run([sys.executable, "-c", program], env=os.environ | asked, capture_output=True, text=True)
    assert done.stdout.split() == ["--preprocess", "--processes"], done.stderr


def test_help_states_the_defaults_that_models_and_recipes_have():
    said = " ".join(defaults().split())
    assert "CycleGAN, photographs: size 256, steps 200000, decay 0.5, generator resnet_9blocks" in said
    assert "CycleGAN, fruit: size 64, steps 1200, lr 0.0005, generator resnet_3blocks" in said
    assert "DeviationGAN, fruit: size 64, steps 2000, ngf 16, ndf 16, blocks 3." in said


def test_no_option_is_taken_for_one_of_torchruns():
    """torchrun looks at the options of the program as well, and refuses one with which several of its own begin."""
    theirs = [option for action in get_args_parser()._actions for option in action.option_strings]
    for name in ("train", "profile", "compare", "sweep"):
        for option in (option for parameter in COMMANDS[name].params for option in parameter.opts):
            assert not [one for one in theirs if one.startswith(option)], option


GIVEN = [
    ("CycleGAN", "discriminator=pixel gan_mode=vanilla lambda_a=3.0 lambda_b=5.0 lambda_identity=0.0 pool_size=7"),
    ("CycleGAN", "n_layers=1 generator=unet_128 norm=instance ngf=2 ndf=3 pool_size=7"),
    ("DeviationGAN", "blocks=1 translators=2 autoencoders=2 stage=translation judged=pictures consistency=cycle"),
    ("DeviationGAN", "lambda_deviation=2.0 lambda_identity=0.5 lambda_cycle=3.0 pool_size=0 ndf=2"),
]


@pytest.mark.parametrize(("kind", "given"), GIVEN)
def test_what_is_given_reaches_the_model(kind, given):
    given = dict(one.split("=") for one in given.split())
    arguments = [part for name, value in given.items() for part in (as_option(name), value)]
    read = parser(train).make_context("train", ["--out", "run", "--model", kind, *arguments]).params
    made = Setup(**{name: read[name] for name in ("model", *model_arguments())}).make().settings
    settings = MODELS[kind]().settings | recipes.find("fruit", kind).model | given
    assert {name: str(value) for name, value in made.items()} == {n: str(v) for n, v in settings.items()}


def test_profile_and_compare_take_the_model_of_a_recipe_a_run_or_a_file():
    for name in ("profile", "compare"):
        named = {parameter.name for parameter in COMMANDS[name].params}
        assert named >= {"like", "data", "size", "model", "device"} and named.isdisjoint(model_arguments())


def test_a_misspelt_speedup_leaves_an_earlier_comparison_as_it_is(call, tmp_path):
    (tmp_path / "compare.html").write_text("earlier")
    status, _, errors = call("compare", "bf16,batche", "--out", tmp_path)
    assert status == 1 and "did you mean 'batched'?" in errors
    assert (tmp_path / "compare.html").read_text() == "earlier"
