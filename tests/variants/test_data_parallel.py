"""Several ranks compute what one process does: the same losses, gradients, weights, pools and pictures."""

import re

import pytest
import torch
from killing import same
from several_ranks import COMPOSABLE, everything, model, pictures, run, train_up_to, trained

import labkit
from labkit import ranks
from labkit.measure.same import Update, relative
from labkit.models.pool import Pool
from labkit.training import checkpoints
from labkit.variants.data_parallel import merge_shares, share_of
from labkit.variants.registry import SPEEDUPS

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def shared(tmp_path_factory):
    """What two ranks trained."""
    folder = tmp_path_factory.mktemp("ranks")
    train_up_to(4, folder)
    two = run(2, everything, folder)
    train_up_to(12, folder)
    examples = [tuple(map(int, line.split())) for line in (folder / "examples").read_text().splitlines()]
    return {**two, "examples": examples, "run": checkpoints.load(folder / "run")}


@pytest.fixture(scope="module")
def alone():
    """The first steps of one process without speed-ups."""
    return trained(steps=4)


def assert_same(mine, right):
    for k, (losses, expected) in enumerate(zip(mine["losses"], right["losses"], strict=True)):
        for name, loss in expected.items():
            assert relative(losses[name], loss) <= 1e-9, (name, k)
    for name, weights in right["weights"].items():
        if not BEFORE_A_NORM(name):
            assert (mine["weights"][name] - weights).norm() <= 1e-9 * weights.norm(), name


# Biases before an instance norm have no true gradient, only rounding, which Adam magnifies.
BEFORE_A_NORM = re.compile(r"G_..model.(?!20).*bias|D_..model.[25].bias").fullmatch


def test_twenty_steps_of_ranks_are_those_of_one_process(shared):
    assert_same(shared[""], trained())


@pytest.mark.parametrize("name", COMPOSABLE)
def test_every_speedup_that_composes_is_the_baseline(shared, alone, name):
    mine = shared[name]
    if SPEEDUPS[name].tolerance == "exact":
        assert_same(mine, alone)
    else:
        distance = mine["first"].distance(Update.of(labkit.make_step(model(bits16=True)), pictures(0, bits16=True)))
        assert distance.losses <= 1e-2 and distance.cosine >= 0.9


def test_a_run_of_one_goes_on_with_two_and_ends_with_one_on_the_same_pictures(shared):
    examples = shared["examples"]
    assert sorted(position for position, _ in examples) == list(range(12 * 4))
    by_the_second = [position for position, rank in examples if rank == 1]
    assert by_the_second == [18, 19, 22, 23, 26, 27, 30, 31], "the second half of each of the batches 4 to 7"
    assert all(len(values) == 12 for values in shared["run"]["losses"].values())


def test_ranks_compare_steps_together(shared):
    table, verdicts = shared["compared"]["table"], shared["compared"]["table"]["verdict"]
    assert shared["compared"]["ranks"] == 2
    assert verdicts["batched"] in ("faster", "slower", "no difference") and verdicts["halved"] == "not equivalent"
    assert verdicts["on one rank"] == "not equivalent"
    assert (table["images_per_s"] * table["median_s"]).tolist() == pytest.approx([4.0] * 5), "2 pictures on each of 2"


def test_ranks_share_the_pool_and_go_on_from_it_bit_by_bit(shared):
    pool, (first, again) = shared["pools"]["saved"]["pools"]["fake_A"], shared["pools"]["ends"]
    assert pool["filled"] == 5 and pool["pictures"].shape[0] == 5
    assert all(picture.abs().sum() > 0 for picture in pool["pictures"])
    assert pool["ranks"][0] != pool["ranks"][1], "both ranks draw the same"
    assert same(first, again)


def test_one_process_goes_on_with_the_pool_of_two_ranks(shared):
    step, saved = labkit.make_step(model(pool_size=5)), shared["pools"]["saved"]
    step.load_state_dict(saved)
    assert torch.equal(step.model.pools["fake_A"].buffer[:5], saved["pools"]["fake_A"]["pictures"])
    step(*pictures(6))


@pytest.mark.parametrize("filled", [0, 3, 5])
@pytest.mark.parametrize("n", [1, 2, 3, 7])
def test_shares_of_a_pool_are_the_pool(filled, n):
    pool = Pool(5, seed=3)
    if filled:
        pool(torch.arange(filled * 12.0).view(filled, 3, 2, 2))
    shares = []
    for rank in range(n):
        share = Pool(len(range(rank, 5, n)))
        share.load_state_dict(share_of(pool.state_dict(), rank, n))
        shares.append(share.state_dict())
    whole = merge_shares(shares, 5)
    assert whole["filled"] == filled
    if filled:
        assert torch.equal(whole["pictures"][:filled], pool.state_dict()["pictures"][:filled])


def test_a_batch_that_the_ranks_cannot_share_is_refused_with_the_sizes_that_work(tiny, fruit, monkeypatch):
    step = labkit.make_step(tiny())
    monkeypatch.setattr(ranks, "count", lambda: 2)
    with pytest.raises(labkit.LabkitError, match="2 ranks, but each would train a model of its own"):
        labkit.fit(step, fruit, 1, batch_size=2)
    step.ranks = step.shares = 2
    with pytest.raises(labkit.LabkitError, match="batch_size=3 cannot be .* choose a multiple of 2"):
        labkit.fit(step, fruit, 1, batch_size=3)


def test_ranks_that_differ_hear_only_of_what_differs(monkeypatch):
    settings = {"done": 4, "steps": 10, "seed": 0}
    monkeypatch.setattr(ranks, "gathered", lambda mine: [mine, mine, {**mine, "seed": 1}])
    with pytest.raises(labkit.LabkitError, match=r"^rank 2: seed is 1, on rank 0 0\. All ranks need the same"):
        ranks.all_equal(settings)
