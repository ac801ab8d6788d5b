"""What the gates share: each case in a process of its own, with a time limit, and a Markdown table of the verdicts."""

import argparse
import contextlib
import importlib
import os
import pickle
import select
import signal
import sys
import tempfile
import time
import traceback
import warnings
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ["TQDM_DISABLE"] = "1"

import torch

import labkit

Result = tuple[str, str]  # a verdict, and what there is to say


def sentence(error: BaseException) -> str:
    """An error in one line, with its kind."""
    return " ".join(f"{type(error).__name__}: {error}".split())


def isolated(case: Callable[[], Result], seconds: float) -> Result:
    """What `case` returns, from a fork of this process, in an empty folder of its own."""
    reading, writing = os.pipe()
    with tempfile.TemporaryDirectory(prefix="gate", ignore_cleanup_errors=True) as folder:
        sys.stdout.flush()
        child = os.fork()
        if not child:
            os.setpgid(0, 0)
            os.chdir(folder)
            output = os.open("output.txt", os.O_CREAT | os.O_WRONLY)
            os.dup2(output, 1)
            os.dup2(output, 2)
            torch.manual_seed(0)
            try:
                result = case()
            except BaseException as error:  # the gate's own fault
                traceback.print_exc()
                result = "GATE BROKEN", f"{sentence(error)} {traceback.format_exc().splitlines()[-3:-1]}"
            Path(folder, "result.pickle").write_bytes(pickle.dumps(result))
            os.write(writing, b"1")
            os._exit(0)
        os.close(writing)
        answered = select.select([reading], [], [], seconds)[0]
        done = answered and os.read(reading, 1)
        try:
            os.killpg(child, signal.SIGKILL)
        except (ProcessLookupError, PermissionError):
            os.kill(child, signal.SIGKILL)
        os.close(reading)
        _, status = os.waitpid(child, 0)
        if done:
            return pickle.loads(Path(folder, "result.pickle").read_bytes())
        output = Path(folder, "output.txt").read_text(errors="replace")[-300:] if answered else ""
        return ("DIED", f"status {status} {output}") if answered else ("HANGS", f"over {seconds} s")


def warm() -> None:
    """Imports what a training imports when it is needed, so that forks find it. No thread of PyTorch starts here."""

    def train() -> Result:
        step = labkit.make_step(labkit.CycleGAN("resnet_3blocks", "n_layers", 4, 4, 1), "fused_adam")
        labkit.fit(step, labkit.fruit(2, 32), 1, checkpoint="run")
        labkit.load_model("run")
        return "names", " ".join(
            name for name in sys.modules if name.startswith(("torch.", "labkit.", "PIL.", "sympy"))
        )

    for name in isolated(train, 300)[1].split():
        if name not in sys.modules:
            with contextlib.suppress(Exception):
                importlib.import_module(name)


def run(
    cases: Mapping[str, Callable[[], Result]],
    about: str,
    seconds: float = 60,
    expected: Mapping[str, str] | None = None,
    bad: Callable[[str], bool] = lambda verdict: verdict != verdict.lower(),
) -> None:
    """Runs the cases that the command line names, prints each as a row, and then the counts. Ends with 1 if one is bad.

    Verdicts with a capital letter are bad. With `expected`, a fifth column says whether the verdict is the one that was
    written down before.
    """
    parser = argparse.ArgumentParser(description=about)
    parser.add_argument(
        "names", nargs="*", help="parts of the names of cases; all of a name's parts joined by + must fit"
    )
    parser.add_argument("--list", action="store_true", help="only print the cases")
    parser.add_argument("--bad", action="store_true", help="print no rows of good cases")
    parser.add_argument("--timeout", type=float, default=seconds, help=f"seconds for a case, {seconds} by default")
    wish = parser.parse_args()
    chosen = {
        name: case
        for name, case in cases.items()
        if not wish.names or any(all(part in name for part in wanted.split("+")) for wanted in wish.names)
    }
    if wish.list:
        print("\n".join(chosen))
        return
    torch.set_num_threads(1)
    warm()
    print(f"{about.splitlines()[0]}\n\nlabkit from {Path(labkit.__file__).parent}, torch {torch.__version__}\n")
    print(
        "| case | expected | verdict | what |\n|---|---|---|---|"
        if expected
        else "| case | verdict | what |\n|---|---|---|"
    )
    counts, started, unexpected = Counter(), time.monotonic(), 0
    for name, case in chosen.items():
        verdict, what = isolated(case, wish.timeout)
        counts[verdict] += 1
        what = what.replace("|", "/").replace("\n", " ")[:400]
        row = [name, verdict, what]
        surprise = bool(expected) and verdict not in expected[name].split("/")
        unexpected += surprise
        if expected:
            row.insert(1, expected[name])
        if not wish.bad or bad(verdict) or surprise:
            print(f"| {' | '.join(row)} |", flush=True)
    print(f"\n{sum(counts.values())} cases in {time.monotonic() - started:.0f} s:\n")
    print("| verdict | cases |\n|---|---|")
    for verdict, count in counts.most_common():
        print(f"| {verdict} | {count} |")
    if expected:
        print(f"\nNot as written down before: {unexpected} of {sum(counts.values())}")
    sys.exit(any(bad(verdict) for verdict in counts))


def weights(model: torch.nn.Module) -> dict[str, torch.Tensor]:
    """Copies of a model's tensors, without the extra state of its modules, and those that are not initialised yet."""
    return {
        name: value.detach().clone()
        for name, value in model.state_dict().items()
        if isinstance(value, torch.Tensor) and not isinstance(value, torch.nn.parameter.UninitializedTensorMixin)
    }


def equal(first: Mapping[str, torch.Tensor], second: Mapping[str, torch.Tensor]) -> bool:
    """Whether both hold the same bits."""
    return first.keys() == second.keys() and all(torch.equal(first[name], second[name]) for name in first)


warnings.simplefilter("default")
