"""The wrong answers that the checks know, from tools/wrong_answers: a file a notebook, a table for each.

    [cycle_loss.no_weight]                              exercise and mistake
    expects = 'the weight is not used'                  a part of the check's message
    old = 'return weight * (reconstruction - real)'     text that occurs once in the solution's cell
    new = 'return (reconstruction - real)'              what the student wrote instead

Several changes are a list of such pairs, `edits`. An answer that has little in common with the solution is given whole,
in `answer`.
"""

import re
import tomllib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

WRONG_ANSWERS = Path(__file__).with_name("wrong_answers")


@dataclass(frozen=True)
class Mistake:
    """A wrong answer: its name, a part of the message it gets, and how it differs from the solution."""

    name: str
    expects: str
    answer: str = ""
    edits: Sequence[dict[str, str]] = ()

    def made_in(self, solution: str) -> str:
        """The wrong answer as a student would have written it into the cell.

        Raises:
            ValueError: the solution has changed, so that an edit fits nowhere, or in several places.
        """
        if self.answer:
            return self.answer
        for edit in self.edits:
            if solution.count(edit["old"]) != 1:
                raise ValueError(f"{self.name}: {edit['old']!r} occurs {solution.count(edit['old'])} times, not once")
            solution = solution.replace(edit["old"], edit["new"])
        return solution

    @property
    def in_words(self) -> str:
        """The mistake's name as words."""
        return re.sub("_s(?=_|$)", "'s", self.name).replace("_", " ")


def known(notebook: str, folder: Path = WRONG_ANSWERS) -> dict[str, list[Mistake]]:
    """The known mistakes by exercise. The notebook's name begins with its number."""
    path = folder / f"{notebook.partition('_')[0]}.toml"
    tables = tomllib.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    return {
        exercise: [
            Mistake(name, one["expects"], one.get("answer", ""), one.get("edits") or ([one] if "old" in one else []))
            for name, one in mistakes.items()
        ]
        for exercise, mistakes in tables.items()
    }
