"""The command line does what it says, and says in one line what it cannot do."""

import json
import re
import subprocess
import sys
import warnings

import pytest
import synthetic_trace
import torch
from tiny import noisy_pictures

import labkit
import labtrace.cli
from labkit.data.images import read_picture
from labkit.training import checkpoints

SMALL = ["--size", "16", "--ngf", "4", "--steps", "2", "--workers", "0", "--device", "cpu"]


AT_LEAST_0 = ("pool-size", "decay-steps", "keep-every", "workers", "processes", "batch-size", "seed")


def test_a_warning_does_not_take_the_place_of_the_error(monkeypatch, capsys):
    """Of several ranks one alone prints an error, the first that has one to print."""
    errors = []

    def command():
        warnings.warn("slow here", stacklevel=1)
        raise labkit.LabkitError("it failed")

    monkeypatch.setattr(sys, "argv", ["labkit", "train"])
    monkeypatch.setattr(warnings, "showwarning", warnings.showwarning)  # put back afterwards
    with pytest.raises(SystemExit):
        labtrace.cli.run_app(command, "labkit", report_error=lambda *said: errors.append(said))
    assert errors == [("it failed", "labkit")] and capsys.readouterr().err == "labkit: slow here\n"


@pytest.mark.filterwarnings("always:pictures left out")
def test_train_on_folders_and_translate_back_with_every_option(call, tmp_path):
    noisy_pictures(tmp_path / "data", dict.fromkeys(("trainA", "trainB"), 2 * [(40, 40)]))
    options = [*SMALL, "--size", "24", "--generator", "resnet_3blocks", "--decay-steps", "1"]
    status, out, _ = call("train", "--data", tmp_path / "data", "--out", tmp_path / "run", *options)
    assert status == 0 and "2 steps done" in out and "fg" not in out
    profile = ("profile", "--like", tmp_path / "run", "--out", tmp_path / "trace.json", "--device", "cpu", "--shapes")
    assert call(*profile, "--steps", "1")[0] == 0 and "[1, 3, 24, 24]" in (tmp_path / "trace.json").read_text()
    translate = ("translate", tmp_path / "data" / "trainB", tmp_path / "out", "--run", tmp_path / "run")
    status, out, _ = call(*translate, "--direction", "BtoA")
    assert status == 0 and out.split() == [str(tmp_path / "out" / f"{i}.png") for i in range(2)]
    status, out, error = call(*translate, "--size", 24)
    assert status == 1 and not out and "0.png" in error
    assert call(*translate, "--size", 24, "--overwrite")[0] == 0
    (tmp_path / "data" / "trainB" / "damaged.png").write_text("no picture")
    status, out, error = call(*translate, "--size", 24, "--overwrite")
    assert status == 1 and "damaged.png cannot be read" in error
    assert out.count(".png") == len(list((tmp_path / "out").iterdir()))
    assert read_picture(tmp_path / "out" / "1.png").shape == (3, 24, 24)


def test_memory_that_does_not_suffice_is_said_in_one_line(call, tmp_path, monkeypatch):
    monkeypatch.setattr("labkit.models.cyclegan.make_generator", lambda *given: torch.empty(10**15))
    status, _, error = call("train", "--out", tmp_path / "run", *SMALL)
    assert status == 1 and "labkit: out of memory (the host could not give 4,000,000,000 MB more)" in error


def test_profile_prints_operators_and_writes_a_trace(call, tmp_path):
    (own := tmp_path / "own.py").write_text("from labkit import DeviationGAN\nmake_model = lambda: DeviationGAN(ngf=4)")
    small = ["--size", "32", "--steps", "1", "--device", "cpu", "--speedups", "batched"]
    status, out, _ = call("profile", "--like", own, "--out", tmp_path / "trace.json.gz", *small)
    assert status == 0 and "convolution_backward" in out and (tmp_path / "trace.json.gz").stat().st_size > 1000


@pytest.mark.slow
def test_report_leads_with_the_first_remedy_and_shows_what_it_can(call, tmp_path):
    synthetic_trace.one_kernel().save(tmp_path / "gpu.json")
    status, said, _ = call("report", tmp_path / "gpu.json", "--out", tmp_path / "gpu.html")
    assert status == 0 and said.startswith("The GPU is busy 100% of the time, entirely with matrix")
    assert "gpu.html" in said
    page = (tmp_path / "gpu.html").read_text()
    assert page.count('class="figure"') == 6 and "no shapes of convolutions" in page  # nor gaps and ranges
    status, said, _ = call("report", tmp_path / "gpu.json")
    assert said.splitlines()[-1] == str(tmp_path / "gpu.html")
    lost = synthetic_trace.SyntheticTrace()
    lost.call(0)
    status, said, _ = call("report", lost.save(tmp_path / "lost.json"))
    assert status == 0 and said.startswith("lost.json: the host launched kernels, but none")
    status, said, _ = call("report", tmp_path / "gpu.json", "--json")
    assert json.loads(said)["gpu.json"]["summary"][0]["bound_by"]


def test_report_names_recordings_by_what_tells_them_apart(call, tmp_path):
    for folder in ("before", "after"):
        (tmp_path / folder).mkdir()
        synthetic_trace.one_kernel().save(tmp_path / folder / "trace.json")
    before, after = tmp_path / "before" / "trace.json", tmp_path / "after" / "trace.json"
    (tmp_path / "before" / "trace.html").write_text("a page of my own")
    assert [call("report", before)[1].split()[-1][-12:] for _ in range(2)] == ["trace-2.html", "trace-3.html"]
    assert (tmp_path / "before" / "trace.html").read_text() == "a page of my own"
    _, said, _ = call("report", before, after)
    assert "before/trace.json: The GPU" in said and "after/trace.json: The GPU" in said
    status, _, error = call("report", before, tmp_path / "after" / ".." / "before" / "trace.json")
    assert status == 1 and "is given twice" in error


REFUSED = [
    (["train", "--out", "run", "--data", "photos"], "/photos and no set of this name. --data takes a folder"),
    (["train", "--out", "run", "--device", "cuda:99"], "device='cuda:99'"),
    (["train", "--out", "run", "--steps", "5", "--decay-steps", "6"], "constant=-1, decay=6 steps"),
    (["train", "--out", "run", "--size", "17"], "pictures of 17x17 pixels"),
    (["train", "--out", "run", "--generator", "unet_256", "--norm", "instance"], "multiples of 256"),
    (["train", "--out", "run", "--lr-policy", "cosin"], "did you mean 'cosine'"),
    (["train", "--out", "run", "--lr-policy", "cosine", "--decay-steps", "5"], "to --lr-policy linear or step"),
    (["train", "--out", "run", "--lr", "fast"], "--lr fast: give a number, such as 2e-4, or one for each player"),
    (["train", "--out", "run", "--lr", "generators=2e-4,1e-4"], "--lr generators=2e-4,1e-4: give a number"),
    (["train", "--out", "run", "--lr", "generator=2e-4"], "or one for each of generators, discriminators"),
    (["profile", "--out", "trace.txt"], "ends in .json"),
    (["profile", "--out", "trace.json", "--like", __file__], "test_cli.py: define a function make_model.. in it"),
    (["train", "--out", "run", "--model", "DeviationGAN", "--lambda-a", "3"], "a DeviationGAN has no.*--lambda-cycle"),
    (["train", "--out", "run", "--judged", "codes"], "--judged: a CycleGAN has no such argument.*--gan-mode"),
    (["train", "--out", "run", "--discriminator", "basic", "--n-layers", "2"], "--n-layers counts the layers of"),
    (["train", "--out", "run", "--lambda-b", "inf"], "lambda_b=inf: a finite number"),
]


@pytest.mark.parametrize(("arguments", "message"), REFUSED)
def test_what_cannot_be_done_is_said_in_one_line_without_a_traceback(call, tmp_path, monkeypatch, arguments, message):
    monkeypatch.chdir(tmp_path)
    status, _, err = call(*arguments)
    assert status == 1
    assert err.startswith("labkit: ") and re.search(message, err) and "Traceback" not in err


@pytest.mark.parametrize("word", ["epochs", "n_epochs", "gpu_ids", "batch", "dataroot", "name", "netG", "crop_size"])
def test_an_option_of_other_trainers_is_answered_with_labkit_s(call, word):
    status, _, error = call("train", f"--{word}", "3", "--lr_policy", "linear")
    assert status == 2 and f"--{word} is an option of other trainers. Here" in " ".join(error.replace("│", "").split())


@pytest.mark.parametrize(("option", "value"), [("--steps", "many"), *((f"--{name}", -1) for name in AT_LEAST_0)])
def test_a_number_that_makes_no_sense_is_named_by_its_option(call, tmp_path, option, value):
    status, out, error = call("train", "--out", tmp_path / "run", *SMALL, option, value)
    assert status == 2 and f"Invalid value for '{option}'" in error and not out
    assert not (tmp_path / "run").exists()


def test_another_run_in_the_folder_is_refused_with_the_difference(call, tmp_path):
    call("train", "--out", tmp_path / "run", *SMALL)
    before = (tmp_path / "run" / "checkpoint.pt").read_bytes()
    for more, said in (
        (["--batch-size", "2"], "batch_size=1 there, 2 here"),
        (["--seed", "2"], "seed=0 there, 2 here"),
        (["--size", "24", "--model", "DeviationGAN"], "kind='CycleGAN' there"),
        (["--out", tmp_path / "new", "--init-from", tmp_path / "nowhere"], "there is no checkpoint"),
        (["--out", tmp_path / "run" / "checkpoint.pt" / "x"], "nothing can be written there"),
    ):
        status, _, error = call("train", "--out", tmp_path / "run", *SMALL, *more)
        assert status == 1 and said in error, error
    assert (tmp_path / "run" / "checkpoint.pt").read_bytes() == before


def test_learning_rates_by_player_apply_to_a_resumed_run(call, tmp_path):
    train = ["train", "--out", tmp_path / "run", *SMALL]
    assert call(*train, "--steps", "1")[0] == 0
    status, _, error = call(*train, "--steps", "2", "--lr", "generators=3e-4,discriminators=1e-4")
    assert status == 0, error
    saved = checkpoints.load(tmp_path / "run")["step"]["optimizers"]
    rates = {player: adam["param_groups"][0]["lr"] for player, adam in saved.items()}
    assert rates == {"generators": 3e-4, "discriminators": 1e-4}


def test_importing_labkit_loads_nothing_that_a_gpu_machine_may_lack():
    code = "import sys, labkit, labkit.cli, labkit.training.fit, labkit.measure.record; labkit.CycleGAN; "
    code += "labkit.make_step; print(*sys.modules); import benchmarks.authoring.visit; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    training, visit = (set(line.split()) for line in done.stdout.splitlines())
    missing = {"plotly", "hta", "ipywidgets", "IPython", "pandas"}
    assert not missing & (training | visit)
