"""Build the site of the course, static pages that open from a file: out/site/index.html.

    python -m tools.website [notebooks/04_two_streams.ipynb ...]      # or: make site; default: all of notebooks/

Runs the notebooks, and keeps them in out/website/executed until they change. Then Sphinx makes the pages.
"""

import argparse
import shutil
import subprocess
import sys
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

from tools.website.execute import execute_stale
from tools.website.interactive import draw_stale
from tools.website.pages import gather, known

ROOT = Path(__file__).resolve().parents[2]
WORK, SITE = ROOT / "out" / "website", ROOT / "out" / "site"
AT_A_TIME = 2  # notebooks; each computes in one thread


def main() -> int:
    """The command line; Sphinx's exit status."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("notebooks", nargs="*", type=Path, default=sorted((ROOT / "notebooks").glob("*.ipynb")))
    parser.add_argument("--links", action="store_true", help="check the links to other sites, too, and build nothing")
    arguments = parser.parse_args()
    with ProcessPoolExecutor(AT_A_TIME) as pool:
        jobs = execute_stale(pool, [path.resolve() for path in arguments.notebooks], WORK / "executed")
        jobs += draw_stale(pool, WORK / "interactive")
        for job in jobs:
            print(job.result(), flush=True)
    gather(WORK / "executed", WORK / "interactive", WORK / "source")
    builder, folder = ("linkcheck", WORK / "links") if arguments.links else ("html", SITE)
    shutil.rmtree(folder, ignore_errors=True)  # with pages of yesterday
    everything = len(known(WORK / "executed")) == len(list((ROOT / "notebooks").glob("*.ipynb")))
    strict = ["-W", "--keep-going"] if everything else []  # some links lead nowhere if notebooks are missing
    command = ["-m", "sphinx", "-q", "-E", "-j", str(AT_A_TIME), *strict, "-b", builder, "-c", Path(__file__).parent]
    return subprocess.run([sys.executable, *command, "-d", WORK / "doctrees", WORK / "source", folder]).returncode


if __name__ == "__main__":
    sys.exit(main())
