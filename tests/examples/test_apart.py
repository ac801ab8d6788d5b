"""Modules trained apart, and weights that are averaged instead of gradients: when they are one process."""

import copy
import re

import pytest
import torch
from apart import apart
from averaging import averaged
from killing import same
from several_ranks import run
from tiny import one_generator

import labkit
from labkit import ranks

pytestmark = pytest.mark.slow

# Biases before an instance norm have no true gradient, only rounding, which Adam magnifies.
BEFORE_A_NORM = re.compile(r"T_A.blocks..*bias|D_A.model.[03].bias").fullmatch


def model(**settings):
    return one_generator(blocks=2, **settings).double()


def pictures(k):
    random = torch.Generator().manual_seed(k)
    return tuple(torch.rand(2, 3, 24, 24, generator=random, dtype=torch.float64) * 2 - 1 for _ in range(2))


def trained(step, steps):
    return [{name: loss.item() for name, loss in step(*pictures(k)).items()} for k in range(steps)]


def spread(of):
    """The largest difference of a weight between two ranks."""
    mine = torch.cat([weight.detach().flatten() for weight in of.parameters()])
    rank_0 = mine.clone()
    torch.distributed.broadcast(rank_0, 0)
    return ranks.largest([(mine - rank_0).abs().max().item()])[0]


def everything(folder):
    """What the ranks compute with an exchange in every step and now and then, on the same pictures and on their own."""
    every, third = apart(model(), 1), apart(model(), 3)
    alike, own = averaged(model(pool_size=0), 2), averaged(model(), 3)
    answers = {"every": {"losses": trained(every, 20), "state": every.state_dict()}}
    trained(third, 9)
    answers["third"] = copy.deepcopy({"seen": third.model.state_dict(), "saved": third.state_dict()["model"]})
    third.finish()
    answers["third"]["ended"] = third.model.state_dict()
    answers["alike"] = {"losses": trained(alike, 6), "weights": alike.model.state_dict()}
    answers["spread"] = []
    for k in range(4):
        own(*pictures(2 * k + ranks.number()))
        answers["spread"].append(spread(own.model))
    saved = copy.deepcopy(own.state_dict())
    answers["saved"] = saved["model"]
    for name, outer in {"mean": None, "half": dict(lr=0.5)}.items():
        step = averaged(model(), 2, outer)
        step.load_state_dict(saved)
        for k in range(2):
            step(*pictures(2 * k + ranks.number()))
        answers[name] = step.model.state_dict()
    return answers


@pytest.fixture(scope="module")
def three(tmp_path_factory):
    """What three ranks computed."""
    return run(3, everything, tmp_path_factory.mktemp("ranks"))


def test_with_an_exchange_in_every_step_three_ranks_are_one_process(three):
    step = labkit.make_step(model())
    torch.testing.assert_close(three["every"]["losses"], trained(step, 20), rtol=1e-9, atol=0)
    state = three["every"]["state"]
    for name, weight in step.model.state_dict().items():
        assert (state["model"][name] - weight).norm() <= 1e-9 * weight.norm() + 1e-12, name
    step.load_state_dict(state)  # continues in one process


def test_weights_of_others_grow_old_until_the_run_ends(three):
    step = labkit.make_step(model())
    trained(step, 9)
    assert not same(three["third"]["saved"], step.model.state_dict()), "old weights make a difference"
    assert not same(three["third"]["saved"], three["third"]["seen"])
    assert same(three["third"]["saved"], three["third"]["ended"])


def test_ranks_that_average_over_the_same_pictures_are_one_process(three):
    step = labkit.make_step(model(pool_size=0))
    for mine, right in zip(three["alike"]["losses"], trained(step, 6), strict=True):
        assert mine == pytest.approx(right, rel=1e-12)
    for name, weight in step.model.state_dict().items():
        if not BEFORE_A_NORM(name):
            assert (three["alike"]["weights"][name] - weight).norm() <= 1e-9 * weight.norm(), name


def test_ranks_drift_apart_until_they_average(three):
    assert [far > 0 for far in three["spread"]] == [True, True, False, True]


def test_an_outer_step_of_length_a_half_goes_half_the_way_to_the_mean(three):
    half_way = {name: (before + three["mean"][name]) / 2 for name, before in three["saved"].items()}
    torch.testing.assert_close(three["half"], half_way)


def test_what_cannot_be_shared_is_refused(tiny):
    with pytest.raises(labkit.LabkitError, match="Only the modules of a DeviationGAN"):
        apart(tiny(), 1)
    with pytest.raises(labkit.LabkitError, match="1 processes: start one a player"):
        apart(model(), 1)
