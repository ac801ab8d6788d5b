"""Build the site of the course, static pages that open from a file: out/site/index.html.

    python -m tools.website [notebooks/04_two_streams.ipynb ...]      # or: make site; default: all of notebooks/

Runs the notebooks, and keeps them in out/website/executed until they, labkit or data/ change. Then Sphinx makes the
pages: without solutions, hidden tests and what else is for teachers.
"""

import argparse
import shutil
import subprocess
import sys
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

from tools.assignments import ROOT
from tools.website.notebooks import AT_A_TIME, WORK, executed
from tools.website.pages import gather


def main() -> int:
    """The command line; Sphinx's exit status."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    everything = sorted((ROOT / "notebooks").glob("*.ipynb"))
    parser.add_argument("notebooks", nargs="*", type=Path, default=everything)
    parser.add_argument("--links", action="store_true", help="check the links to other sites, and build nothing")
    arguments = parser.parse_args()
    with ProcessPoolExecutor(AT_A_TIME) as pool:
        ran = list(pool.map(executed, [path.resolve() for path in arguments.notebooks]))
    gather(ran, WORK / "source")
    builder, folder = ("linkcheck", WORK / "links") if arguments.links else ("html", ROOT / "out" / "site")
    shutil.rmtree(folder, ignore_errors=True)  # no old page stays
    strict = ["-W", "--keep-going"] if arguments.notebooks == everything else []  # else some links lead nowhere
    command = ["-m", "sphinx", "-q", "-E", "-j", str(AT_A_TIME), *strict, "-b", builder, "-c", Path(__file__).parent]
    return subprocess.run([sys.executable, *command, "-d", WORK / "doctrees", WORK / "source", folder]).returncode


if __name__ == "__main__":
    sys.exit(main())
