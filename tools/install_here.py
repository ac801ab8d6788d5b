"""Install the labkit of this clone into the Python that runs this script, which the notebooks' first cell does.

Only the standard library is imported, and in the running process `import labkit` works from here on.
"""

import subprocess
import sys
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path

CLONE = Path(__file__).resolve().parents[1]
# A notebook's kernel may have loaded these already: they stay as they are.
KEPT = ("torch", "torchvision", "numpy", "pandas", "IPython", "ipykernel")

print("Installing labkit from", CLONE)
pins = [f"{name}=={version(name)}" for name in KEPT if find_spec(name)]
pip = [sys.executable, "-m", "pip", "install", "--quiet", "-e", f"{CLONE}[lab]", *pins]
done = subprocess.run(pip, stderr=subprocess.PIPE, text=True)
if done.returncode:
    wrong = RuntimeError("\n".join(["labkit cannot be installed here. pip says:", *done.stderr.splitlines()[-3:]]))
    wrong._render_traceback_ = lambda: [f"RuntimeError: {wrong}"]  # all that Jupyter shows
    raise wrong
sys.path.insert(0, str(CLONE))  # pip's entry is read only by processes that start after it
