"""`labkit.accept_new_data`: a run goes on after pictures were added or taken away, in an order that is known."""

import pytest
import torch

import labkit
from labkit.data.images import write_picture
from labkit.errors import CheckpointError


@pytest.mark.parametrize("n", [9, 20])
def test_from_then_on_the_batches_are_those_of_a_run_with_the_new_pictures(tiny, fruit, tmp_path, n):
    seen = []

    class Watched:
        def inputs(self, real_a, real_b):
            seen.append((real_a, real_b))
            return super().inputs(real_a, real_b)

    def train(data, steps, **options):
        step = labkit.make_step(tiny(), Watched)
        return labkit.fit(step, data, steps, checkpoint=tmp_path, seed=3, **options)

    train(fruit, 2)
    grown = labkit.fruit(n=n, size=32, seed=0)
    with pytest.raises(
        CheckpointError, match=r"pictures=\[12, 12\] there, .*another folder.*--allow-new-data, or labkit"
    ):
        train(grown, 4)
    labkit.accept_new_data(tmp_path, grown)
    run = train(grown, 4)
    assert run.done == len(run.losses["G_A"]) == 4
    for step, batch in enumerate(labkit.batches(grown, 1, 2, 4, seed=3), start=2):
        assert all(map(torch.equal, seen[step], batch))
    assert train(grown, 5).done == 5, "the new numbers are the run's own now"
    with pytest.raises(CheckpointError, match="seed=3 there, 4 here") as refused:
        labkit.fit(labkit.make_step(tiny()), grown, 6, checkpoint=tmp_path, seed=4)
    assert "allow" not in str(refused.value)


def test_a_folder_that_has_grown_goes_on_if_told(call, tmp_path):
    def add(name):
        for domain in ("trainA", "trainB"):
            noise = torch.rand(3, 40, 40, generator=torch.Generator().manual_seed(len(name)))
            write_picture(noise.mul(255).to(torch.uint8), tmp_path / "data" / domain / f"{name}.png")

    add("a")
    small = ["--size", "24", "--generator", "resnet_3blocks", "--ngf", "4", "--ndf", "4", "--workers", "0"]
    train = ("train", "--data", tmp_path / "data", "--out", tmp_path / "run", *small, "--no-tensorboard")
    assert call(*train, "--steps", 1)[0] == 0
    add("bb")
    status, _, error = call(*train, "--steps", 2)
    assert status == 1 and "pictures=[1, 1] there, [2, 2] here" in error and "--allow-new-data" in error
    status, said, _ = call(*train, "--steps", 2, "--allow-new-data")
    assert status == 0 and "2 steps done" in said
