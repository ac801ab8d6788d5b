# @title Setup: run this cell first. It finds labkit, or installs it.
import json
import os
import re
import subprocess
import sys
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from urllib.parse import unquote
from urllib.request import urlopen

REPO = ""  # @param {type:"string"}
# Fill REPO in only if this cell asks for it: the course's address, such as https://github.com/OWNER/NAME


def course_address() -> list[str]:
    """What `git clone` is given: REPO, else the variable LABKIT_REPO, else where Colab opened this notebook from."""
    if repo := REPO or os.environ.get("LABKIT_REPO"):
        return [repo]
    try:
        sessions = "http://{COLAB_JUPYTER_IP}:{KMP_TARGET_PORT}/api/sessions".format_map(os.environ)
        opened = unquote(json.load(urlopen(sessions, timeout=5))[0]["path"])
        # A branch's name may have slashes: notebooks lie one folder deep, so that the rest of the path is the branch.
        repo, branch = re.search(r"(github\.com/[^/]+/[^/]+)/blob/(.+)/[^/]+/[^/]+$", opened).groups()
        return [f"https://{repo}", f"--branch={branch}"]
    except (AttributeError, LookupError, OSError, ValueError):  # not Colab, or not opened from GitHub
        raise RuntimeError("labkit is not here: set REPO, above, to the course's address and run this again") from None


if getattr(find_spec("labkit"), "origin", None) is None:
    here = Path.cwd()
    clones = [folder for folder in (here, *here.parents) if (folder / "labkit" / "__init__.py").exists()]
    clone = clones[0] if clones else here / "labkit-course"  # a folder named labkit would pass for the package
    if not clone.exists():
        address = course_address()
        git = subprocess.run(["git", "clone", "--quiet", "--depth=1", *address, str(clone)], stderr=-1, text=True)
        if git.returncode:
            raise RuntimeError(f"{' '.join(address)} cannot be cloned: is it public? git says: {git.stderr.strip()}")
    # Packages that this kernel may have loaded already stay as they are.
    kept = ["torch", "torchvision", "numpy", "pandas", "IPython", "ipykernel"]
    pins = [f"{name}=={version(name)}" for name in kept if find_spec(name)]
    print("Installing labkit from", clone)
    subprocess.run([sys.executable, "-m", "pip", "install", "--quiet", "-e", f"{clone}[lab]", *pins], check=True)
    sys.path.insert(0, str(clone))  # only kernels started from now on find it by themselves

import labkit

print("labkit", labkit.__version__, "from", Path(labkit.__file__).parents[1])
