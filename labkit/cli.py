"""The command line: train a model on pictures, translate pictures with it, and measure."""

import os
import sys
import warnings

import typer

import labkit
from labkit.commands import register
from labkit.commands.measuring import compare, profile, report, speedrun, speedups
from labkit.commands.networks import export, score, translate
from labkit.commands.sweeping import sweep
from labkit.commands.training import defaults, train
from labkit.errors import LabkitError

UNDER_TORCHRUN = "TORCHELASTIC_RUN_ID" in os.environ  # labkit.ranks would tell, too, but loads torch

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    help=__doc__,
    epilog="labkit --version prints labkit's version.",
)
for command in (translate, export, score, profile, report, speedups, compare, speedrun):
    register(app, command)
register(app, train, epilog=defaults())
register(app, sweep, context_settings={"allow_extra_args": True, "ignore_unknown_options": True})


def main() -> None:
    """Runs the command line. Errors that the user can fix are printed as one line, without a traceback."""
    warnings.showwarning = lambda message, *_, **__: print(f"labkit: {message}", file=sys.stderr)
    if sys.argv[1:] == ["--version"]:
        sys.exit(print(f"labkit {labkit.__version__}"))
    try:
        run_rank() if UNDER_TORCHRUN else app()
    except (LabkitError, OSError) as error:  # OSError: its text names the file and the problem
        message = str(error)
    except ModuleNotFoundError as error:
        message = f"{error}, which this command needs: pip install 'labkit[lab,export,log,score]'"
    except (RuntimeError, MemoryError) as error:
        from labkit.devices import LESS_MEMORY, out_of_memory

        if (reason := out_of_memory(error)) is None:
            raise
        message = f"out of memory ({reason}). {LESS_MEMORY}"
    labkit.ranks.print_once(f"labkit: {message}")
    sys.exit(1)


def run_rank() -> None:
    """The command line in one of several processes, of which the first alone prints."""
    with labkit.ranks.process_group():
        if labkit.ranks.number() > 0:
            warnings.showwarning = lambda *_, **__: None
            sys.stdout = open(os.devnull, "w")  # noqa: SIM115  # until the process ends
        app()
