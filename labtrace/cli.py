"""The command line of labtrace, and how all commands are made: functions whose docstrings hold the help."""

from __future__ import annotations

import functools
import inspect
import itertools
import json
import os
import re
import sys
import warnings
from collections.abc import Callable, Mapping
from inspect import Parameter
from pathlib import Path
from typing import Annotated, Any

import typer

import labtrace
from labtrace.errors import LabError, say
from labtrace.lazy import needs
from labtrace.watch import unused, watch

# A command whose arguments are a script with its own options
WHOLE = {"allow_interspersed_args": False, "ignore_unknown_options": True}


def register(app: typer.Typer, command: Callable[..., None], **settings: Any) -> None:
    """Makes a function a command. Keyword-only parameters are options, the others are arguments.

    A section of the docstring is a panel of the help.
    """
    parameters = dict(inspect.signature(command, eval_str=True).parameters)
    add(app, command, parameters, described(command.__doc__), **settings)


def add(
    app: typer.Typer,
    command: Callable[..., None],
    parameters: Mapping[str, Parameter],
    texts: Mapping[str, tuple[str, str]],
    **settings: Any,
) -> None:
    """Makes a function a command with these parameters.

    Args:
        app, command, settings: as for `register`.
        parameters: by name. Those without a text are left as they are.
        texts: for each parameter its panel and its help.
    """
    parameters = dict(parameters)
    for name in [name for name in parameters if name in texts]:
        each, (panel, text) = parameters[name], texts[name]
        if each.default and each.default is not Parameter.empty:
            text = f"{text} Default: {each.default}."
        shown: dict[str, Any] = dict(help=text, rich_help_panel=panel, show_default=False)
        if each.kind != Parameter.KEYWORD_ONLY:
            info = typer.Argument(help=text)
        elif each.annotation is bool:
            info = typer.Option(as_option(name), metavar="", **shown)  # no --no- in front
        elif each.annotation in (int, int | None):
            info = typer.Option(callback=not_negative, **shown)
        else:
            info = typer.Option(**shown)
        parameters[name] = each.replace(annotation=Annotated[each.annotation, info])

    @functools.wraps(command)
    def call(**given: Any) -> None:
        command(**given)

    call.__signature__ = inspect.Signature(list(parameters.values()))  # type: ignore[attr-defined]
    call.__annotations__ = {name: each.annotation for name, each in parameters.items()}
    summary = re.split(r"\n\n[\w ,]+:\n", inspect.getdoc(command) or "")[0]
    app.command(help=summary, **settings)(call)


def not_negative(number: int | None) -> int | None:
    """The number. Raises typer's error, which names the option, if it is below 0."""
    if number is not None and number < 0:
        raise typer.BadParameter(f"{number} is below 0.")
    return number


def described(docstring: str | None) -> dict[str, tuple[str, str]]:
    """The section and the text of each argument that a docstring describes, by its name."""
    section, texts = "", dict[str, tuple[str, str]]()
    for line in re.sub(r"\n {5,}", " ", inspect.cleandoc(docstring or "")).splitlines():
        if entry := re.fullmatch(r"    (\w[\w, ]*): (.*)", line):
            texts |= dict.fromkeys(entry[1].split(", "), (section, entry[2]))
        elif line:
            section = line.rstrip(":")
    return texts


def as_option(name: str) -> str:
    """The option by which an argument is given on the command line."""
    return f"--{name.removeprefix('as_').replace('_', '-')}"


def report(traces: list[Path], *, out: Path | None = None, as_json: bool = False) -> None:
    """Print what bounds a trace and what to try, or what changed between two, and write a page with figures.

    Args:
        traces: Trace files, or folders with a file of each rank. Two are compared: before and after a change.

    Options:
        out: The page to write. By default, beside the first trace and under the names of all, with a number where
            another page has that name.
        as_json: Print the verdict and the tables as one JSON object, and write no page.
    """
    from labtrace.show.report import report_data, report_text, trace_report

    opened = {name: labtrace.Trace(path) for name, path in named(traces).items()}
    if as_json:
        typer.echo(json.dumps(report_data(opened)))
        return
    typer.echo(report_text(opened))
    paths = [Path(os.path.abspath(path)) for path in traces]
    names = [path.name.removesuffix(".gz").removesuffix(".json") for path in paths]
    page = paths[0].with_name(f"{'-'.join(names)}.html")
    taken = page.exists() and b"<title>Trace report" not in page.read_bytes()[:1000]  # by a page that is not ours
    typer.echo(trace_report(opened, out or (unused(str(page)[:-5], (".html",)) if taken else page)))


def named(paths: list[Path]) -> dict[str, Path]:
    """Files or folders by their names, with the folders above them where the names alone are the same.

    Raises:
        LabError: one is given twice.
    """
    parts = [Path(os.path.abspath(path)).parts for path in paths]
    if len(set(parts)) < len(parts):
        raise LabError(f"{max(paths, key=paths.count)} is given twice. Name another recording to compare it with.")
    length = next(n for n in itertools.count(1) if len({each[-n:] for each in parts}) == len(parts))
    return {"/".join(each[-length:]): path for each, path in zip(parts, paths, strict=True)}


def application(text: str | None, **context: Any) -> typer.Typer:
    """A command line without commands. `context` are settings of typer's context."""
    settings: dict[str, Any] = dict(no_args_is_help=True, pretty_exceptions_enable=False)
    settings["context_settings"] = {"help_option_names": ["-h", "--help"], **context}
    return typer.Typer(**settings, help=text, callback=lambda: None, epilog="--version prints the version.")


def message_of(error: Exception) -> str | None:
    """The line to print for an error that the user can fix, or None for any other error."""
    if isinstance(error, LabError | OSError):  # OSError: its text names the file and the problem
        return str(error)
    return needs(error, "this command")


def run_app(
    app: Callable[[], Any],
    program: str,
    message_of: Callable[[Exception], str | None] = message_of,
    report_error: Callable[[str, str], None] = say,
) -> None:
    """Runs a command line. Errors that the user can fix are printed as one line, without a traceback.

    Args:
        app: the command line.
        program: its name.
        message_of: gives this line, or None for an error that keeps its traceback.
        report_error: prints it, given this line and the name. Warnings are printed in any case.
    """
    warnings.showwarning = lambda message, *_, **__: say(str(message), program)
    if sys.argv[1:] == ["--version"]:
        print(f"{program} {labtrace.__version__}")
        sys.exit()
    try:
        app()
    except Exception as error:
        if (message := message_of(error)) is None:
            raise
        report_error(message, program)
        sys.exit(1)


app = application(labtrace.__doc__.partition("\n")[0])
register(app, report)
register(app, watch, context_settings=WHOLE)


def main() -> None:
    """The command `labtrace`."""
    run_app(app, "labtrace")
