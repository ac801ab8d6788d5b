# @title Setup: run this cell first. It finds labkit, or installs it.
import os
import runpy
import subprocess
from importlib.util import find_spec
from pathlib import Path

REPO = ""  # @param {type:"string"}
# Fill REPO in only if this cell asks for it: the course's address, such as https://github.com/OWNER/NAME

if not getattr(find_spec("labkit"), "origin", None):  # a folder that merely has this name has no origin
    course = Path("labkit-course").resolve()
    installers = [folder / "tools" / "install_here.py" for folder in (*course.parents, course)]
    installer = next(filter(Path.exists, installers), installers[-1])
    if not installer.exists():
        address = REPO or os.environ.get("LABKIT_REPO", "")
        git = subprocess.run(["git", "clone", "--quiet", "--depth=1", address, course], capture_output=True, text=True)
        if git.returncode:
            why = f" git says: {git.stderr}" if address else ""
            to_do = "Fill in REPO in this cell, such as https://github.com/OWNER/NAME, and run the cell again."
            wrong = RuntimeError(f"labkit is not here, and REPO should be the course's public address. {to_do}{why}")
            wrong._render_traceback_ = lambda: [f"RuntimeError: {wrong}"]  # all that Jupyter shows
            raise wrong
    runpy.run_path(str(installer))

import labkit

print("labkit", labkit.__version__, "from", Path(labkit.__file__).parents[1])
