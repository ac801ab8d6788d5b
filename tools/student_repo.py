"""Make the repository that students get: the exercises, and the three packages.

    python -m tools.student_repo OUT https://github.com/OWNER/NAME     # or: make student-repo OUT=... REPO=...

OUT becomes a git repository, or gets one more commit if it is one that was made by this program. The address is the one
under which students will find it: the notebooks' first cell and their links to Colab need it. Solutions, wrong answers,
tests and the pages for teachers stay behind.
"""

import re
import shlex
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import nbformat

from tools import assignments
from tools.assignments import ROOT

COPIED = (
    "constraints.txt environment.yml install.mk LICENSE pyproject.toml requirements.txt .gitignore .devcontainer data "
    "labtrace labkit labcourse examples docs/fruit.png docs/clusters.md docs/speedrun.md docs/speedups.md "
    "docs/traces.md docs/trust.md docs/gallery/05_02.png tools/exercises.py tools/install.sh tools/install_here.py "
    "tools/jupyter"
).split()
KEPT_BACK = re.compile(r"data/speedrun/(?!cyclegan)\w+\.py")  # entries that would do as an answer of notebook 12
TEMPLATES = ROOT / "tools" / "student"  # README.md, AGENTS.md, CLAUDE.md and Makefile
ASSISTANTS = " An assistant may explain errors and terms; predictions and marked cells are yours (AGENTS.md)."
MADE_HERE = "Course material made with labkit"  # begins the message of each commit


def colab(repo: str, name: str) -> str:
    """The address under which Colab opens an exercise of a public repository on GitHub, "" for another repository."""
    place = repo.replace("https://github.com/", "https://colab.research.google.com/github/")
    return f"{place}/blob/main/exercises/{name}" if place != repo else ""


def exercises(notebooks: list[Path], folder: Path, repo: str) -> None:
    """Write the notebooks as exercises into `folder`, with the course's address in each.

    The address comes first: nbgrader keeps a checksum of each locked cell, and Validate compares it.
    """
    with tempfile.TemporaryDirectory() as course:
        for path in notebooks:
            notebook = nbformat.read(path, as_version=4)
            first = next(cell for cell in notebook.cells if cell.cell_type == "code")
            first.source = re.sub(r'^REPO = "[^"]*"', f'REPO = "{repo}"', first.source, flags=re.MULTILINE)
            begin = "Work in a copy: `make student` makes one and never overwrites it."
            begin += (f" [Open it in Colab]({link})." if (link := colab(repo, path.name)) else "") + ASSISTANTS
            notebook.cells[0].source = assignments.SOLVED.sub(begin, notebook.cells[0].source)
            nbformat.write(notebook, Path(course, path.name))
        assignments.make(sorted(Path(course).glob("*.ipynb")), Path(course))
        for released in sorted(Path(course).glob("release/*/*.ipynb")):
            shutil.copy(released, folder)


def readme(repo: str, folder: Path) -> str:
    """The students' README: the template with the table of notebooks."""
    rows = ["| notebook | minutes | |", "|---|---|---|"]
    for path in sorted((folder / "exercises").glob("*.ipynb")):
        minutes = assignments.minutes_of(nbformat.read(path, as_version=4))
        link = f"[in Colab]({link})" if (link := colab(repo, path.name)) else ""
        rows.append(f"| [{path.stem}](exercises/{path.name}) | {minutes} | {link} |")
    return (TEMPLATES / "README.md").read_text(encoding="utf-8").format(repo=repo, notebooks="\n".join(rows))


def git(folder: Path, *arguments: str) -> str:
    """Run git in a repository; its output. If it fails, SystemExit says why."""
    ended = subprocess.run(["git", "-C", str(folder), *arguments], capture_output=True, text=True)
    if ended.returncode:
        raise SystemExit(f"git {arguments[0]} in {folder}: {ended.stderr.strip()}")
    return ended.stdout.strip()


def copy_tracked(names: list[str], folder: Path, kept_back: re.Pattern[str]) -> None:
    """Copy what git tracks here under these names into a folder, but for the files that are kept back."""
    for name in git(ROOT, "ls-files", *names).splitlines():
        if not kept_back.fullmatch(name):
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, folder / name)


def prepare(out: Path) -> None:
    """Make the repository or remove its files; raises SystemExit on a folder with something else in it."""
    if not out.exists() or not any(out.iterdir()):
        out.mkdir(parents=True, exist_ok=True)
        git(out, "init", "--quiet", "--initial-branch=main")
    elif not (out / ".git").exists() or not git(out, "log", "--max-count=1", "--format=%s").startswith(MADE_HERE):
        raise SystemExit(f"{out} holds something else: name an empty folder, or one that this program has made")
    elif git(out, "status", "--porcelain"):
        raise SystemExit(f"{out} has changes that are not committed: commit or remove them first")
    git(out, "rm", "-r", "--quiet", "--ignore-unmatch", ".")


def make(out: Path, repo: str, notebooks: list[Path]) -> None:
    """Write the repository with these notebooks, and commit what has changed."""
    git(ROOT, "var", "GIT_COMMITTER_IDENT")  # fails before anything is written if git does not know who commits
    prepare(out)
    copy_tracked(COPIED, out, KEPT_BACK)
    shutil.copytree(TEMPLATES, out, dirs_exist_ok=True)
    (out / "exercises").mkdir(exist_ok=True)
    exercises(notebooks, out / "exercises", repo)
    (out / "README.md").write_text(readme(repo, out), encoding="utf-8")
    git(out, "add", "--all")
    if git(out, "status", "--porcelain"):
        git(out, "commit", "--quiet", "--message", f"{MADE_HERE}, commit {git(ROOT, 'rev-parse', 'HEAD')}")


if __name__ == "__main__":
    out, address = sys.argv[1], sys.argv[2].rstrip("/").removesuffix(".git")
    make(Path(out).resolve(), address, sorted(ROOT.glob("notebooks/*.ipynb")))
    print(f"To publish it: git -C {shlex.quote(out)} push {address} main")
