"""Train a model on pictures, translate pictures with it, and measure where the time of its training goes."""

import os
import sys
import warnings

import typer

import labkit
import labtrace.cli
from labkit.commands import register
from labkit.commands.doctor import doctor
from labkit.commands.measuring import compare, profile, speedups
from labkit.commands.networks import export, score, translate
from labkit.commands.sweeping import sweep
from labkit.commands.training import defaults, train
from labtrace.cli import WHOLE, described, report
from labtrace.watch import watch

OTHERS = {name: text for name, (section, text) in described(train.__doc__).items() if section == "Other trainers"}
UNDER_TORCHRUN = "TORCHELASTIC_RUN_ID" in os.environ  # labkit.ranks would tell, too, but loads torch


def spelled_here(option: str) -> str:
    """An option in lower case, with hyphens. Raises typer's error, with what to give, for one of other trainers."""
    if (name := option.lower().replace("-", "_")) in OTHERS:
        raise typer.BadParameter(f"--{option} is an option of other trainers. {OTHERS[name]}")
    return name.replace("_", "-")


app = labtrace.cli.application(__doc__, token_normalize_func=spelled_here)
register(app, train, epilog=defaults())
register(app, sweep, context_settings={"allow_extra_args": True, "ignore_unknown_options": True})
for command in (translate, score, export, profile, report, compare, speedups):
    register(app, command)
register(app, watch, context_settings=WHOLE)
register(app, doctor)


def main() -> None:
    """The command `labkit`."""
    if UNDER_TORCHRUN and sys.argv[1:2] != ["watch"]:  # whose script has ranks of its own
        labtrace.cli.run_app(run_rank, "labkit", message_of, labkit.ranks.print_once)
    else:
        labtrace.cli.run_app(app, "labkit", message_of)


def message_of(error: Exception) -> str | None:
    """As `labtrace.cli.message_of`, and if there is too little memory or another rank is gone."""
    message = labtrace.cli.message_of(error)
    if message is None and isinstance(error, RuntimeError | MemoryError):
        from labkit.devices import LESS_MEMORY, out_of_memory

        reason = out_of_memory(error)
        message = f"out of memory ({reason}). {LESS_MEMORY}" if reason else labkit.ranks.lost(error)
    return message


def run_rank() -> None:
    """The command line in one of several processes, of which the first alone prints all that concerns all."""
    with labkit.ranks.process_group():
        if labkit.ranks.number() > 0:
            warnings.simplefilter("ignore")
            warnings.filterwarnings("default", "left out, with")  # it may be the only rank that has seen the picture
            sys.stdout = open(os.devnull, "w")  # noqa: SIM115  # until the process ends
        labtrace.cli.run_app(app, "labkit", message_of, labkit.ranks.print_once)  # here: the group ends the process
