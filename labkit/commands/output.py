"""What a command prints: lines for people, one JSON object for scripts, or nothing."""

import contextlib
import dataclasses
import json
import os
from collections.abc import Iterator
from typing import Annotated, Any

import typer
from typer import Option

SAVING = "Saving, and what is printed"
Quiet = Annotated[bool, Option("--quiet", "-q", help="Print errors only.", rich_help_panel=SAVING)]
AsJson = Annotated[bool, Option("--json", help="Print only one JSON object, at the end.", rich_help_panel=SAVING)]


@dataclasses.dataclass
class Output:
    """What a command prints, as its options say. Errors go to standard error in any case."""

    quiet: bool
    as_json: bool

    @contextlib.contextmanager
    def working(self, if_stopped: str) -> Iterator[None]:
        """The command works inside: --quiet hides all that it prints, and Ctrl-C ends it with exit status 130.

        A run that another signal stopped ends with the status of that one.

        Args:
            if_stopped: what to say after Ctrl-C if the work itself says nothing.
        """
        try:
            with contextlib.ExitStack() as stack:
                if self.quiet:
                    nowhere = stack.enter_context(open(os.devnull, "w"))
                    stack.enter_context(contextlib.redirect_stdout(nowhere))
                    stack.enter_context(contextlib.redirect_stderr(nowhere))
                yield
        except KeyboardInterrupt as stopped:
            from labkit import ranks

            ranks.print_once(f"labkit: {str(stopped) or if_stopped}")
            raise typer.Exit(getattr(stopped, "status", 130)) from None

    def say(self, line: str) -> None:
        """A line while the command works: with --json on standard error, to keep the other for the object."""
        typer.echo(line, err=self.as_json)

    def end(self, result: dict[str, Any], lines: list[str]) -> None:
        """The result, at the end: as an object for --json, else in lines."""
        if self.as_json:
            typer.echo(json.dumps(result))
        elif lines and not self.quiet:
            typer.echo("\n".join(lines))
