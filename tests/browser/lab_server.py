"""JupyterLab as `make lab` starts it in a fresh installation, on a free port of this machine."""

import contextlib
import os
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from urllib.request import urlopen

ROOT = Path(__file__).parents[2]
OF_JUPYTER = ("LAB_SETTINGS", "LAB_WORKSPACES", "_CONFIG", "_DATA", "_RUNTIME")
FOLDERS = ("IPYTHONDIR", *(f"JUPYTER{name}_DIR" for name in OF_JUPYTER))  # of a user, who may have changed settings
NOWHERE = "http://127.0.0.1:9"  # a port without a server: what a kernel asks of the network is refused
ARGUMENTS = "--no-browser --allow-root --ip=127.0.0.1 --ServerApp.port_retries=0 --IdentityProvider.token=".split()


@contextlib.contextmanager
def jupyterlab(folder: Path) -> Iterator[str]:
    """Starts JupyterLab on a copy of the notebooks in `folder`; its address."""
    shutil.copytree(ROOT / "notebooks", folder / "notebooks", ignore=shutil.ignore_patterns("out", ".ipynb*"))
    own = {name: str(folder / name) for name in FOLDERS} | {"JUPYTER_CONFIG_PATH": str(ROOT / "tools" / "jupyter")}
    proxies = {"http_proxy": NOWHERE, "https_proxy": NOWHERE, "no_proxy": "127.0.0.1,localhost"}
    env = os.environ | own | proxies | {"PYTHONPATH": str(ROOT), "LABKIT_LEDGER": str(folder / "ledger.json")}
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [sys.executable, "-m", "jupyterlab", *ARGUMENTS, "--LabApp.expose_app_in_browser=True", f"--port={port}"]
    with open(folder / "jupyterlab.log", "w") as log:
        server = subprocess.Popen(command, cwd=folder / "notebooks", env=env, stdout=log, stderr=log)
        try:
            address = f"http://127.0.0.1:{port}"
            _wait(f"{address}/api", server, folder / "jupyterlab.log")
            yield address
        finally:
            server.terminate()
            server.wait(60)


def _wait(address: str, server: subprocess.Popen[bytes], log: Path) -> None:
    for _ in range(240):
        with contextlib.suppress(OSError):
            urlopen(address, timeout=5).close()
            return
        assert server.poll() is None, f"JupyterLab ended: {log.read_text()[-2000:]}"
        time.sleep(0.5)
    raise TimeoutError(f"JupyterLab does not answer at {address} after two minutes; its messages are in {log}")
