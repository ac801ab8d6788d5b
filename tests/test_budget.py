"""The tables of CONTRIBUTING.md under "Budgets": lines of all that is kept, of long files, width of notebooks."""

import ast
import io
import json
import re
import subprocess
import tokenize
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).parents[1]
LONG, LONGEST, WIDTH = 320, 400, 92
NO_CODE = {getattr(tokenize, name) for name in ("COMMENT", "NL", "NEWLINE", "INDENT", "DEDENT", "ENDMARKER")}
SCRIPTS = ".sh .mk .yaml .yml .js .css .j2 .slurm Makefile Dockerfile .ci/run".split()
DEFINITIONS = ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef


def tracked(*patterns):
    listed = subprocess.check_output(["git", "ls-files", "-z", *patterns], cwd=ROOT, text=True)
    return [ROOT / name for name in listed.split("\0") if name and (ROOT / name).exists()]


def code_lines(source):
    """The lines that are neither blank, nor comments, nor docstrings."""
    docstrings = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, DEFINITIONS) and ast.get_docstring(node, clean=False) is not None:
            docstrings |= set(range(node.body[0].lineno, node.body[0].end_lineno + 1))
    tokens = tokenize.generate_tokens(io.StringIO(source).readline)
    return len(
        {n for one in tokens if one.type not in NO_CODE for n in range(one.start[0], one.end[0] + 1)} - docstrings
    )


def table(heading):
    """The rows below this heading of CONTRIBUTING.md: a name, and the number beside it."""
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8").partition(f"| {heading} |")[2].partition("\n\n")[0]
    return {
        name: int(number.replace(",", "")) for name, number in re.findall(r"^\| `(.+?)` \| ([\d,]+) \|", text, re.M)
    }


def over(sizes, allowed):
    return [
        f"{name}: {sizes[name]:,}, over by {sizes[name] - most:,}: refuse, document or replace something before adding"
        for name, most in allowed.items()
        if sizes[name] > most
    ]


def test_a_line_of_code_is_no_comment_and_no_docstring():
    assert (
        code_lines(
            '"""Says\n\nwhat."""\n\nx = """a\n\nb"""  # three\n\n\ndef f():\n    """Why."""\n    # how\n    return x\n'
        )
        == 5
    )


def written_lines(text):
    """Lines of a text that is no Python: neither blank nor comments."""
    return sum(1 for line in text.splitlines() if line.strip() and not line.strip().startswith(("#", "//")))


def code_cells():
    """The path, the tags and the source of each code cell of the notebooks."""
    for path in tracked("notebooks/*.ipynb"):
        for cell in json.loads(path.read_text(encoding="utf-8"))["cells"]:
            if cell["cell_type"] == "code":
                yield path, cell["metadata"].get("tags", []), "".join(cell["source"])


def test_all_that_is_kept_keeps_to_its_lines():
    budgets, sizes = table("kept"), Counter()
    for path in tracked("*.py", "*.pyi"):
        folder = f"{path.relative_to(ROOT).parts[0]}/"
        sizes[folder if folder in budgets else "other"] += code_lines(path.read_text(encoding="utf-8"))
    for kind, ends in {"TOML": [".toml"], "C++": [".cpp"], "other": SCRIPTS}.items():
        paths = tracked(*(f"*{end}" for end in ends))
        sizes[kind] += sum(written_lines(path.read_text(encoding="utf-8")) for path in paths)
    for _, tags, source in code_cells():
        sizes["claims" if "claims" in tags else "notebook code"] += written_lines(source)
    assert sizes.keys() == budgets.keys() - {"all"}
    assert not (found := over(sizes | {"all": sizes.total()}, budgets)), found


def test_long_files_are_named_and_do_not_grow():
    lengths = {str(path.relative_to(ROOT)): len(path.read_bytes().splitlines()) for path in tracked("*.py")}
    named = table("long file")
    unnamed = {name: length for name, length in lengths.items() if length > LONG and name not in named}
    assert not unnamed, f"over {LONG} lines: take one subject out, or name the file in CONTRIBUTING.md with its reason"
    assert not [name for name in named if lengths.get(name, 0) <= LONG], "rows that are not needed any more"
    assert not (found := over(lengths, named)), found
    assert sum(most > LONGEST for most in named.values()) <= 8, f"no further file may have over {LONGEST} lines"


def test_no_more_lines_of_notebooks_are_wider_than_they_are_shown():
    wide, seen = Counter(), set()
    for path, tags, source in code_cells():
        if path in seen and "claims" not in tags:  # the first one is folded, and so are claims
            wide["notebooks/"] += sum(len(line) > WIDTH for line in source.splitlines())
        seen.add(path)
    assert not (found := over(wide, table("wide lines"))), found
