"""The report on the class: how many students have which of the known misconceptions.

They are those of tests/wrong_answers, where each says which part of the check's message tells it.
"""

import html
import re
from collections import Counter, defaultdict
from pathlib import Path

from tools.grading.course import Course, Exercise
from tools.mistakes import WRONG_ANSWERS, known

OTHER, RIGHT, UNTOUCHED, UNREAD = "another mistake", "right", "not answered", "to be read"
REFUSED = "has no business in an answer"  # in the message, see labkit.course.check.source
KINDS = {  # of mistakes that no wrong answer there makes: a pattern in the message, and the mistake in words
    REFUSED: "refused",
    r"your code fails with (\w+)": r"fails with \1",
    " is expected, not ": "an answer of another kind",
    r"^(?!WrongAnswer)(\w+): ": r"fails with \1",
}
PAGE = """<!DOCTYPE html>
<html lang="en"><meta charset="utf-8"><title>{title}</title>
<style>
:root {{ color-scheme: light dark }}
body {{ font: 16px/1.4 sans-serif; max-width: 60em; margin: 2em auto; padding: 0 1em }}
table {{ border-collapse: collapse; width: 100% }}
td, th {{ border-bottom: 1px solid #8888; padding: .3em .6em; text-align: left; vertical-align: top }}
td:first-child {{ text-align: right; width: 4em }}
.left td:first-child {{ text-align: left; width: 50% }}
</style>
<h1>{title}</h1>
<p>{students} submissions.</p>
<section>{run}</section>
{sections}
</html>
"""


def known_mistakes(notebook: str, exercise: str, folder: Path = WRONG_ANSWERS) -> dict[str, str]:
    """The names of the known mistakes in an exercise, by the part of the message that tells them."""
    names = defaultdict(list)
    for one in known(notebook, folder).get(exercise, []):
        names[one.expects.casefold()].append(one.in_words)
    return {message: " or ".join(found) for message, found in names.items()}


def mistake(answer: Exercise, known: dict[str, str]) -> str:
    """The mistake in an answer in words."""
    if answer.stopped:
        return f"stopped: {answer.stopped}"
    if answer.untouched:
        return UNTOUCHED
    if answer.points is None:
        return UNREAD
    if not answer.message:
        return f"{answer.points:g} points by hand" if answer.by_hand else RIGHT
    told = answer.message.casefold()
    if fitting := [part for part in known if part in told]:
        return known[max(fitting, key=len)]  # which says most
    kinds = (match.expand(words) for part, words in KINDS.items() if (match := re.search(part, answer.message)))
    return next(kinds, OTHER)


def section(name: str, answers: list[Exercise], known: dict[str, str]) -> str:
    """The part of the page about one exercise."""
    told = [(mistake(answer, known), answer.message) for answer in answers]
    messages = {what: Counter(message for other, message in told if other == what) for what, _ in told}
    count = Counter(what for what, _ in told)
    right = count.pop(RIGHT, 0)
    rows = []
    for what, number in count.most_common():
        lines = [html.escape(message[:400]) for message, _ in messages[what].most_common(1 if what != OTHER else 5)]
        rows.append(f"<tr><td>{number}<td>{html.escape(what)}<td>{'<br>'.join(lines)}")
    head = f"<h2>{html.escape(name)}: {right} of {len(answers)} right</h2>"
    return "\n".join([head, "<table><tr><th>students<th>mistake<th>message", *rows, "</table>"] if rows else [head])


def about_run(note: str, not_graded: dict[str, str]) -> str:
    """A part of the page about a run of `make grade`: a note, and the files and submissions without marks, with why."""
    rows = [f"<tr><td>{html.escape(what)}<td>{html.escape(why)}" for what, why in not_graded.items()]
    head = f"<h2>Not graded: {len(rows)}</h2>\n<table class=left>"
    return "\n".join([f"<p>{html.escape(note)}</p>", *([head, *rows, "</table>"] if rows else [])])


def write(course: Course, notebook: str, path: Path, run: str = "", wrong_answers: Path = WRONG_ANSWERS) -> None:
    """Write the report on a notebook as a page of HTML.

    Args:
        run: the part `about_run`. Without it, a page that was written before keeps its own.
    """
    if not run and path.exists():
        run = path.read_text(encoding="utf-8").partition("<section>")[2].partition("</section>")[0]
    graded = course.graded(notebook)
    sections = [
        section(name, [one.exercises[name] for one in graded], known_mistakes(notebook, name, wrong_answers))
        for name in course.exercises(notebook)
    ]
    title = html.escape(f"{notebook}: what the class knows")
    page = PAGE.format(title=title, students=len(graded), run=run, sections="\n".join(sections))
    path.write_text(page, encoding="utf-8")
