"""Jobs for `several_ranks.run`: parts of networks on several ranks, beside the same networks whole."""

from pathlib import Path

import torch
import torch.distributed as dist
from pipeline_parallel import Pipeline
from tensor_parallel import split_block, whole
from torch import Tensor, nn
from torch.nn import functional as F

from labkit import LabkitError, networks, ranks


def tensor_parallel(folder: Path) -> dict:
    """The answers of each rank, by its number."""
    mistakes = {
        "uneven": lambda: split_block(networks.ResidualBlock(4, inner=5)),
        "grouped": lambda: split_block(networks.grouped_block(8)),
        "dropout": lambda: split_block(with_dropout(networks.ResidualBlock(4))),
        "twice": lambda: split_block(split_block(networks.ResidualBlock(4))),
    }
    return gathered(
        {
            "blocks": {kind: block(kind) for kind in ("instance", "batch", "none", "biases")},
            "refused": refused(mistakes),
        }
    )


def pipelines(folder: Path) -> dict:
    """The answers of each rank, by its number."""
    generator, loss = small_generator(), F.mse_loss
    mistakes = {
        "batch norm": lambda: Pipeline(networks.ResnetGenerator(1, 1, "batch"), 2, loss),
        "microbatches": lambda: Pipeline(generator, 1, loss, "1f1b"),
        "batch": lambda: Pipeline(generator, 2, loss).step(*noise(2, 5, 3, 16, 16)),
    }
    answers = {schedule: pipeline(schedule) for schedule in ("gpipe", "1f1b")}
    return gathered(answers | {"refused": refused(mistakes)})


def gathered(answers: dict) -> dict:
    return dict(enumerate(ranks.gathered(answers)))


def noise(*shape: int, seed: int = 0) -> Tensor:
    return torch.rand(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64) * 2 - 1


def with_large_weights(network: nn.Module) -> nn.Module:
    """The network in float64, with biases and weights that are all far from zero, the same on every rank."""
    torch.manual_seed(0)
    for weight in network.double().parameters():
        nn.init.normal_(weight, 0.0, 0.3)
    return network


def small_generator() -> networks.ResnetGenerator:
    return with_large_weights(networks.ResnetGenerator(blocks=2, width=4))


def gradients(network: nn.Module) -> dict[str, Tensor]:
    return {name: weight.grad for name, weight in network.named_parameters()}


def distances(mine: dict[str, Tensor], right: dict[str, Tensor]) -> dict[str, float]:
    """The relative distance of each; of a gradient that is only rounding, before an instance norm, its size."""
    assert mine.keys() == right.keys(), mine.keys() ^ right.keys()
    sizes = {name: tensor.double().norm().item() for name, tensor in right.items()}
    return {
        name: (mine[name] - tensor).double().norm().item() / (sizes[name] if sizes[name] > 1e-11 else 1)
        for name, tensor in right.items()
    }


class AllReduces:
    """Counts the all-reduces inside."""

    def __enter__(self):
        self.real, self.count = dist.all_reduce, 0
        dist.all_reduce = self.counted
        return self

    def counted(self, *args, **kwargs):
        self.count += 1
        return self.real(*args, **kwargs)

    def __exit__(self, *error):
        dist.all_reduce = self.real


def block(kind: str) -> dict:
    """A split block and the whole one. That called "biases" has no norms, which would take the biases out again."""
    one = with_large_weights(networks.ResidualBlock(4, "instance" if kind == "biases" else kind, inner=6))
    split = split_block(one)
    if kind == "biases":
        for made in (one, split):
            made.conv_block[2] = made.conv_block[6] = nn.Identity()
    here, there = (noise(2, 4, 8, 8).requires_grad_() for _ in range(2))
    weights = noise(2, 4, 8, 8, seed=1)
    right = one(there)
    (right * weights).sum().backward()
    with AllReduces() as forward:
        output = split(here)
    with AllReduces() as backward:
        (output * weights).sum().backward()
    pictures = {"output": output, "input": here.grad}, {"output": right, "input": there.grad}
    states = (whole(split.state_dict()), one.state_dict())
    return {
        "distances": distances(*pictures) | distances(whole(gradients(split)), gradients(one)),
        "states": distances(*states),  # after the pass: of batch norm the running statistics, too
        "parameters": sum(weight.numel() for weight in split.parameters()),
        "all-reduces": (forward.count, backward.count),
    }


def pipeline(schedule: str) -> dict:
    """Two batches through a pipeline, and through the whole generator."""
    one, cut = small_generator(), small_generator()
    shared = Pipeline(cut, 4, nn.functional.mse_loss, schedule)
    passes, answers = [], []
    for seed in (0, 2):
        pictures, targets = noise(8, 3, 16, 16, seed=seed), noise(8, 3, 16, 16, seed=seed + 1)
        right = one(pictures)
        F.mse_loss(right, targets).backward()
        if seed:  # PyTorch's first step runs the stage once more, to learn shapes
            shared.stage.register_forward_hook(lambda stage, inputs, output: note(passes, output))
        answers.append((shared.step(pictures, targets), (right.detach(), F.mse_loss(right, targets).detach())))
    own = gradients(one)
    return {
        "names": list(shared.stage.state_dict()),
        "distances": distances(gradients(shared.stage), {name: own[name] for name in gradients(shared.stage)}),
        "outputs": [
            None if mine is None else distances(*(dict(enumerate(x)) for x in (mine, right))) for mine, right in answers
        ],
        "passes": "".join(passes),
        "same weights": all(weight is cut.get_parameter(name) for name, weight in shared.stage.named_parameters()),
    }


def note(passes: list[str], output: Tensor) -> None:
    passes.append("F")
    output.register_hook(lambda gradient: passes.append("B"))


def with_dropout(block: networks.ResidualBlock) -> networks.ResidualBlock:
    block.conv_block.insert(4, nn.Dropout())
    return block


def refused(mistakes: dict) -> dict[str, str]:
    """What each mistake is told."""
    said = {}
    for name, mistake in mistakes.items():
        try:
            mistake()
            said[name] = "nothing"
        except (LabkitError, ValueError) as error:
            said[name] = str(error)
    return said
