"""The command line: train a model on pictures, translate pictures with it, and measure."""

import os
import sys
import warnings
from typing import Annotated

import typer

import labkit
from labkit.commands.measuring import compare, profile, report, speedups
from labkit.commands.networks import export, score, translate
from labkit.commands.speedrun import speedrun
from labkit.commands.sweep import sweep
from labkit.commands.train import defaults, train
from labkit.errors import LabkitError

UNDER_TORCHRUN = "TORCHELASTIC_RUN_ID" in os.environ  # labkit.ranks would tell, too, but loads torch
REFERENCE = {  # options of the public reference, and ours
    "--dataroot": "--data",
    "--name": "--out",
    "--checkpoints_dir": "--out",
    "--gpu_ids": "--device, and CUDA_VISIBLE_DEVICES to choose a GPU",
    "--netG": "--generator",
    "--netD": "--discriminator",
    "--n_layers_D": "--n-layers",
    "--num_threads": "--workers",
    "--crop_size": "--size",
    "--n_epochs": "--epochs, of both parts together",
    "--n_epochs_decay": "--decay-steps",
    "--lr_decay_iters": "--decay-steps with --lr-policy step",
    "--lambda_A": "--lambda-a",
    "--lambda_B": "--lambda-b",
    "--continue_train": "the same command again",
    "--save_epoch_freq": "--keep-every, in steps",
    "--results_dir": "the second argument of labkit translate",
    "--epoch": "--step",
}

app = typer.Typer(no_args_is_help=True, add_completion=False, pretty_exceptions_enable=False, help=__doc__)


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"labkit {labkit.__version__}")
        raise typer.Exit


@app.callback()
def common(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print labkit's version.")
    ] = False,
) -> None:
    """The options of `labkit` itself, whose help is that of `app`."""


app.command(epilog=defaults())(train)
for command in (translate, export, score, profile, report, speedups, compare, speedrun):
    app.command()(command)
app.command(context_settings={"allow_extra_args": True, "ignore_unknown_options": True})(sweep)


def main() -> None:
    """Runs the command line; errors that the user can fix are printed as one line, without a traceback."""
    warnings.showwarning = lambda message, *_, **__: print(f"labkit: {message}", file=sys.stderr)
    try:
        for option in (word.partition("=")[0] for word in sys.argv[1:]):
            if option in REFERENCE:
                raise LabkitError(f"{option} is the public reference's: here it is {REFERENCE[option]}.")
        _rank() if UNDER_TORCHRUN else app()
    except (LabkitError, OSError) as error:  # OSError: its text names the file and the problem
        from labkit import ranks

        ranks.print_once(f"labkit: {error}")
        sys.exit(1)
    except (RuntimeError, MemoryError) as error:
        from labkit import ranks
        from labkit.devices import LESS_MEMORY, out_of_memory

        if (reason := out_of_memory(error)) is None:
            raise
        ranks.print_once(f"labkit: out of memory ({reason}). {LESS_MEMORY}")
        sys.exit(1)
    except ModuleNotFoundError as error:
        print(f"labkit: {error}, which this command needs: pip install 'labkit[lab]'", file=sys.stderr)
        sys.exit(1)


def _rank() -> None:
    """The command line in one of several processes, of which the first alone prints."""
    from labkit import ranks

    with ranks.joined():
        if ranks.number() > 0:
            warnings.showwarning = lambda *_, **__: None
            sys.stdout = open(os.devnull, "w")  # noqa: SIM115  # until the process ends
        app()
