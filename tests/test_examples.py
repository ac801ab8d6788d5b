"""The files for clusters: they can be parsed, and torchrun and labkit know every option in them."""

import re
import shlex
import subprocess
from pathlib import Path

import pytest
import typer
import yaml
from torch.distributed.run import get_args_parser

from labkit.cli import app

EXAMPLES = Path(__file__).parents[1] / "examples"
DOCS = EXAMPLES.parent / "docs" / "clusters.md"


def commands(text: str) -> list[str]:
    """The torchrun and labkit commands of a text, each in one line; variables of the shell have some value."""
    text = re.sub(r"\\\n\s*", "", text).replace("; exec", "\nexec")
    text = re.sub(r"\$\((?:[^()]|\([^()]*\))*\)|\$\w+", "1", text)
    found = [line.removeprefix("exec ").removeprefix("srun ").strip() for line in text.splitlines()]
    return [line for line in found if line.startswith(("torchrun ", "labkit "))]


def check(command: str) -> str:
    """Fails unless torchrun and labkit understand the command; gives labkit's own command."""
    arguments = shlex.split(command)
    if arguments[0] == "torchrun":
        parsed = get_args_parser().parse_args(arguments[1:])
        assert parsed.module and parsed.training_script == "labkit"
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


def test_every_command_of_the_page_is_known_and_every_file_is_in_it():
    text = DOCS.read_text()
    blocks = "\n".join(re.findall(r"```bash\n(.*?)```", text, flags=re.DOTALL))
    assert {check(command) for command in commands(blocks)} == {"train", "sweep"}
    assert set(re.findall(r"\(\.\./examples/(\S+)\)", text)) == {path.name for path in EXAMPLES.iterdir()}
