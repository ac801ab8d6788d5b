"""Exercises as they are graded: the cells in IPython, the setup once, then each exercise in a fork of that process.

    LABKIT_CHECK_SEED=1 python tests/graded.py < {"setup": [cell, ...], "exercises": [[answer, ..., check], ...]}

Without the variable it is as at home. The last line says for each exercise which errors its cells have shown, and
whether the check has passed.
"""

import json
import multiprocessing
import sys
from multiprocessing.connection import Connection

from IPython.core.interactiveshell import InteractiveShell


class Shell(InteractiveShell):
    """IPython without a screen; it keeps the errors it would show."""

    errors: list[str]

    def _showtraceback(self, kind: type, error: BaseException, lines: list[str]) -> None:
        self.errors.append(f"{kind.__name__}: {error}")

    def passes(self, cell: str) -> bool:
        """Run a cell; whether it has shown no error, which is how nbgrader sees it."""
        before = len(self.errors)
        self.run_cell(cell, store_history=True)
        return len(self.errors) == before


def grade(shell: Shell, cells: list[str], connection: Connection) -> None:
    """Run an answer's cells and its check; send the errors and whether the check has passed."""
    passed = [shell.passes(cell) for cell in cells][-1]
    connection.send((shell.errors, passed))


def main() -> None:
    """Grade all exercises on standard input."""
    cells = json.load(sys.stdin)
    shell = Shell()
    shell.history_manager.enabled = False
    shell.errors = []
    for cell in cells["setup"]:
        assert shell.passes(cell), shell.errors
    graded = []
    for exercise in cells["exercises"]:
        receiving, sending = multiprocessing.Pipe(duplex=False)
        process = multiprocessing.get_context("fork").Process(target=grade, args=(shell, exercise, sending))
        process.start()
        sending.close()
        try:
            graded.append(receiving.recv())
        except EOFError:  # it has ended its process
            graded.append((["the process ended"], False))
        process.join()
    print(json.dumps(graded))


if __name__ == "__main__":
    main()
