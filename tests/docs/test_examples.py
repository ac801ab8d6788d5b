"""The files for clusters can be parsed, and torchrun and labkit know every option in them; the programs run."""

import functools
import re
import runpy
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
import torch
import typer
import yaml
from several_ranks import launch
from torch.distributed.run import get_args_parser

import labkit
from labkit.cli import app
from labkit.data.images import read_picture, write_picture

EXAMPLES = Path(__file__).parents[2] / "examples"
DOCS = EXAMPLES.parent / "docs"
COMMANDS = {  # of labkit, that each page shows
    "clusters.md": {"train", "profile", "exchange_weights", "tensor_parallel", "pipeline_parallel"},
    "training.md": {"train", "translate"},
    "export.md": {"export"},
    "watching.md": {"train", "translate", "export"},
    "reference.md": {"train", "translate"},
}


def commands(text: str) -> list[str]:
    """The torchrun and labkit commands of a text, each in one line; variables of the shell have some value."""
    text = re.sub(r"\\\n\s*", "", text).replace("; exec", "\nexec")
    text = re.sub(r"\$\((?:[^()]|\([^()]*\))*\)|\$\w+", "1", text)
    found = [line.removeprefix("exec ").removeprefix("srun ").strip() for line in text.splitlines()]
    return [line for line in found if line.startswith(("torchrun ", "labkit "))]


def check(command: str) -> str:
    """Fails unless torchrun and labkit understand the command; gives labkit's own command."""
    arguments = shlex.split(command, comments=True)
    if arguments[0] == "torchrun":
        parsed = get_args_parser().parse_args(arguments[1:])
        if not parsed.module:
            program, own = EXAMPLES.parent / parsed.training_script, typer.Typer()
            own.command()(runpy.run_path(str(program))["main"])
            typer.main.get_command(own).make_context(program.name, parsed.training_script_args)
            return program.stem
        assert parsed.training_script == "labkit"
        arguments = ["labkit", *parsed.training_script_args]
    group = typer.main.get_command(app)
    group.commands[arguments[1]].make_context(arguments[1], arguments[2:])
    return arguments[1]


@pytest.mark.parametrize("path", sorted(EXAMPLES.glob("*.slurm")), ids=lambda path: path.name)
def test_batch_files_are_bash_and_every_option_is_known(path):
    assert subprocess.run(["bash", "-n", str(path)], capture_output=True).returncode == 0
    text = path.read_text()
    (command,) = commands(text)
    assert check(command) == path.name.partition(".")[0]
    assert all(re.fullmatch(r"#SBATCH --[a-z-]+(=\S+)?", line) for line in text.splitlines() if "#SBATCH " in line[:8])


def test_the_task_for_skypilot():
    task = yaml.safe_load((EXAMPLES / "train.sky.yaml").read_text())
    assert task.keys() <= {"name", "num_nodes", "resources", "workdir", "setup", "run"}
    (command,) = commands(task["run"])
    assert check(command) == "train"


def test_the_job_for_kubernetes_finds_its_first_pod():
    service, job = yaml.safe_load_all((EXAMPLES / "train.kubernetes.yaml").read_text())
    pod, name = job["spec"]["template"]["spec"], job["metadata"]["name"]
    assert job["spec"]["completionMode"] == "Indexed" and job["spec"]["completions"] == job["spec"]["parallelism"]
    assert pod["subdomain"] == service["metadata"]["name"] and service["spec"]["selector"] == {"job-name": name}
    (container,) = pod["containers"]
    assert {mount["name"] for mount in container["volumeMounts"]} == {volume["name"] for volume in pod["volumes"]}
    (command,) = commands(container["args"][0])
    assert check(command) == "train"
    assert f"--rdzv-endpoint={name}-0.{service['metadata']['name']}:29500" in command
    assert f"--nnodes={job['spec']['completions']}" in command


@pytest.mark.parametrize("page", COMMANDS)
def test_every_command_of_the_page_is_known(page):
    blocks = "\n".join(re.findall(r"```bash\n(.*?)```", (DOCS / page).read_text(), flags=re.DOTALL))
    assert {check(command) for command in commands(blocks)} == COMMANDS[page]


def test_every_file_is_in_a_page():
    text = "\n".join(page.read_text() for page in DOCS.glob("*.md"))
    files = (path for path in EXAMPLES.rglob("*.*") if "__pycache__" not in path.parts)
    names = {path.relative_to(EXAMPLES).as_posix() for path in files}
    assert set(re.findall(r"\(\.\./examples/(\S+)\)", text)) == names


def exchange(how: str, out: Path) -> None:
    labkit.fruit = functools.partial(labkit.fruit, n=8)
    main = runpy.run_path(str(EXAMPLES / "parallel" / "exchange_weights.py"))["main"]
    main(how, out, every=1, steps=2, size=24, width=4)


@pytest.mark.slow
@pytest.mark.parametrize(("how", "kind"), [("apart", "DeviationGAN"), ("averaged", "CycleGAN")])
def test_ranks_exchange_weights(tmp_path, how, kind):
    launch(3, tmp_path, exchange, how, tmp_path / "run")
    assert labkit.load_model(tmp_path / "run").kind == kind


@pytest.mark.slow
@pytest.mark.parametrize(("program", "suffix"), [("run_onnx.py", ".onnx"), ("load_safetensors.py", ".safetensors")])
def test_programs_translate_as_labkit_does(tmp_path, monkeypatch, tiny, fruit, program, suffix):
    labkit.fit(labkit.make_step(tiny()), fruit, 1, checkpoint=tmp_path / "run", sample_every=100)
    noise = torch.rand(3, 37, 50, generator=torch.Generator().manual_seed(0)).mul(255).to(torch.uint8)
    write_picture(noise, tmp_path / "in.png")
    labkit.translate(labkit.load_model(tmp_path / "run"), tmp_path / "in.png", tmp_path / "expected.png", "BtoA")
    labkit.export(tmp_path / "run", tmp_path / f"file{suffix}", "BtoA")
    arguments = [str(tmp_path / name) for name in (f"file{suffix}", "in.png", "out.png")]
    monkeypatch.setattr(sys, "argv", [program, *arguments])
    runpy.run_path(str(EXAMPLES / program), run_name="__main__")
    found, expected = (read_picture(tmp_path / name).int() for name in ("out.png", "expected.png"))
    assert found.shape == expected.shape and (found - expected).abs().max() <= 1  # rounded to another of 256 values
