"""labtrace needs no PyTorch: every module, table and view, and the report."""

import subprocess
import sys

import synthetic_trace

PROGRAM = """
import importlib, pkgutil, sys

class Blocker:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] == "torch":
            raise ImportError("torch is blocked")

sys.meta_path.insert(0, Blocker())
import labtrace
for module in pkgutil.walk_packages(labtrace.__path__, "labtrace."):
    if not module.name.endswith("__main__"):
        importlib.import_module(module.name)
from labtrace.show.views import VIEWS
trace = labtrace.Trace(sys.argv[1])
for table in (
    "summary audit remedies temporal idle gaps kernels launches queue concurrency critical_path ranges operators"
).split():
    assert len(getattr(trace, table)()) or table == "audit", table
for view in set(VIEWS) - {"achieved"}:  # it needs shapes
    labtrace.show.trace(trace, view)
labtrace.replay.write_trace(labtrace.replay.what_if(trace, host=0.5), sys.argv[1] + "_faster.json")
import labkit.cli
sys.argv = ["labkit", "report", sys.argv[1]]
labkit.cli.main()
"""


def test_labtrace_and_labkit_report_work_without_torch(tmp_path):
    path = synthetic_trace.two_streams().save(tmp_path / "trace.json")
    done = subprocess.run([sys.executable, "-W", "ignore", "-c", PROGRAM, str(path)], capture_output=True, text=True)
    assert done.returncode == 0 and "Python" not in done.stderr, done.stderr
    assert (tmp_path / "trace.html").exists() and "trace.html" in done.stdout
