"""A stamp says what a result was measured on, as it is at that moment."""

import functools
import gzip
import json
import re
import subprocess
from pathlib import Path

import forked
import pytest
import torch
from tiny import TINY, two_layers

import labkit
import labtrace.stamp
from labkit.devices import flags
from labkit.simulate import ROOFLINES
from labkit.stamp import stamp

DATA = Path(__file__).parents[1] / "data"


def test_training_timing_and_recording_let_cudnn_search_and_restore_the_flag(tiny, batch, tmp_path, monkeypatch):
    monkeypatch.setattr(torch.backends.cudnn, "benchmark", False)
    small = functools.partial(tiny, generator=two_layers())
    step, seen = labkit.make_step(small()), []

    class Spy(labkit.Callback):
        def on_end(self, run):
            seen.append(torch.backends.cudnn.benchmark)

    labkit.fit(step, labkit.fruit(n=4, size=32), steps=2, callbacks=[Spy()])
    table = labkit.compare({"baseline": lambda: labkit.make_step(small())}, batch(), rounds=6, warmup=0)
    trace = labkit.Trace(labkit.record(step, batch(), tmp_path / "trace.json", steps=1))
    flags = [table.attrs["stamp"]["cudnn_benchmark"], trace.stamp["cudnn_benchmark"]]
    assert seen == [True] and flags == [True, True] and not torch.backends.cudnn.benchmark


SETTINGS = [  # one after the other, with what a stamp then says: products and convolutions on GPUs, and in oneDNN
    ('torch.backends.fp32_precision = "tf32"', [True, True, "tf32", "tf32"]),
    ("torch.backends.cuda.matmul.allow_tf32 = False", [False, True, "tf32", "tf32"]),
    ('torch.backends.cudnn.conv.fp32_precision = "ieee"', [False, False, "tf32", "tf32"]),
    ('torch.backends.mkldnn.conv.fp32_precision = "bf16"', [False, False, "tf32", "bf16"]),
    ('torch.set_float32_matmul_precision("high")', [True, False, "tf32", "bf16"]),
    ("torch.backends.cudnn.allow_tf32 = True", [True, True, "tf32", "bf16"]),
]


def test_older_and_newer_switches_are_stamped_and_restored_in_any_order(tmp_path):
    process = forked.start(tmp_path / "said", _switch)  # what was never set could not be restored here
    process.join()
    assert process.exitcode == 0, (tmp_path / "said").read_text()


def _switch():
    def said():
        return [stamp()[key] for key in ("tf32_matmul", "tf32_conv", "onednn_matmul", "onednn_conv")]

    def step():
        return labkit.make_step(labkit.CycleGAN(**TINY | {"generator": two_layers()}))

    for setting, expected in SETTINGS:
        exec(setting)
        with flags("on"):
            assert said() == [True, True, "tf32", "tf32"], setting
        with flags("off"):
            assert said() == [False, False, "ieee", "ieee"], setting
        assert said() == expected, setting
        predicted = [ROOFLINES["A100"].arithmetic("float32", is_convolution=each) for each in (False, True)]
        assert predicted == ["tfloat32" if allowed else "float32" for allowed in expected[:2]]
    labkit.compare({"baseline": step, "same": step}, tuple(torch.zeros(2, 1, 3, 16, 16)), rounds=6, warmup=0)


def test_it_is_json_and_names_device_and_versions():
    read = json.loads(json.dumps(stamp()))
    assert read["torch"] == torch.__version__ and read["device"] and read["threads"] == torch.get_num_threads()


def test_the_commit_is_that_of_labkit_s_own_clone(tmp_path, monkeypatch):
    subprocess.run(["git", "init", "-q", tmp_path], check=True)
    identity = ["-c", "user.name=A", "-c", "user.email=a@b"]
    commit = ["git", "-C", tmp_path, *identity, "commit", "-q", "--allow-empty", "-m", "first"]
    subprocess.run(commit, check=True)
    for file, known in (("labtrace/stamp.py", True), ("environment/site-packages/labtrace/stamp.py", False)):
        monkeypatch.setattr(labtrace.stamp, "__file__", str(tmp_path / file))
        assert bool(stamp()["commit"]) is known


def git(*arguments):
    return subprocess.run(["git", "-C", str(DATA), *arguments], capture_output=True, text=True)


def in_history(commit):
    return git("merge-base", "--is-ancestor", commit, "HEAD").returncode == 0


def test_history_holds_the_program_of_each_file_in_data():
    """Of the commit in the file's stamp, or of another one where this has uncommitted changes or is not in history."""
    if git("rev-parse", "--is-shallow-repository").stdout != "false\n":
        pytest.skip("this is a shallow clone, or none: it lacks the history")
    text = (DATA / "README.md").read_text(encoding="utf-8").partition("## Commits")[2]
    made = {}
    for files, commit, program in re.findall(r"^\| (`.+`) \| `(.+)` \| `(.+)` \|$", text, re.M):
        assert in_history(commit) and not git("cat-file", "-e", f"{commit}:{program}").returncode, program
        made |= {file: commit for pattern in re.findall("`(.+?)`", files) for file in DATA.glob(pattern)}
    for file in [*DATA.rglob("*.json"), *DATA.rglob("*.json.gz")]:
        with (gzip.open if file.suffix == ".gz" else open)(file, "rt", encoding="utf-8") as opened:
            stamped = re.search(r'"commit": ?"(.+?)"', opened.read())
        if stamped:  # recordings by others have none
            assert made[file] == stamped[1] or stamped[1].endswith("+") or not in_history(stamped[1]), file
