"""Modules trained apart, and weights that are averaged instead of gradients."""

import re

import apart_jobs
import pytest
import torch
from apart import FILE, StalePartnerWarning, apart
from apart_jobs import model, pictures, trained
from averaging import averaged
from killing import same
from several_ranks import run

import labkit
from labkit.measure.same import relative

pytestmark = pytest.mark.slow

MODULES = ("autoencoder", "translator", "discriminator")


@pytest.fixture(scope="module")
def by_ranks(tmp_path_factory):
    """What three ranks trained."""
    return run(3, apart_jobs.everything, tmp_path_factory.mktemp("ranks"))


@pytest.fixture(scope="module")
def modules(by_ranks):
    return by_ranks["modules"]


@pytest.fixture(scope="module")
def alike(by_ranks):
    return by_ranks["alike"]


def test_with_an_exchange_in_every_step_three_ranks_are_one_process(modules):
    step = labkit.make_step(model())
    for losses, right in zip(modules["every step"]["losses"], trained(step, 0, 20), strict=True):
        assert losses.keys() == right.keys()
        assert all(relative(torch.tensor(losses[name]), torch.tensor(right[name])) <= 1e-9 for name in right)
    state = modules["every step"]["state"]
    for name, weight in step.model.state_dict().items():
        assert (state["model"][name] - weight).norm() <= 1e-9 * weight.norm() + 1e-12, name
    step.load_state_dict(state)  # goes on in one process


def test_weights_of_others_grow_old_and_a_resumed_run_has_the_same_old_ones(modules):
    third, resumed = modules["third"], modules["resumed"]
    assert same(third, resumed)
    step = labkit.make_step(model())
    trained(step, 0, 9)
    assert not same(third["model"], step.model.state_dict()), "old weights make a difference"
    before = third["apart"]["before"]
    assert set(before) == set(third["model"]) and not same(before, third["model"])


def test_a_run_apart_ends_with_all_modules_together(modules):
    assert same(modules["run"]["ended"], modules["run"]["saved"]["step"]["model"])
    assert {"rec_A", "rec_B", "D_A", "G_A", "dev_A"} == set(modules["run"]["saved"]["losses"])


def jobs(folder, exchange_every=1):
    return {module: apart(model(), exchange_every=exchange_every, module=module, folder=folder) for module in MODULES}


def test_jobs_find_each_other_s_weights_in_a_folder(tmp_path):
    steps = jobs(tmp_path, exchange_every=2)
    for k in range(4):
        for step in steps.values():
            step(*pictures(k))
    translator, autoencoder = steps["translator"], steps["autoencoder"]
    assert translator.partners == {"autoencoder": 2, "discriminator": 0}
    written = torch.load(tmp_path / "autoencoder" / FILE)["weights"]
    seen = translator.players["autoencoder"]
    assert all(torch.equal(mine, theirs) for mine, theirs in zip(seen, written, strict=True))
    newest = autoencoder.players["autoencoder"]
    assert not any(torch.equal(mine, theirs) for mine, theirs in zip(seen, newest, strict=True)), "two steps old"


def test_a_job_that_comes_back_goes_on(tmp_path):
    steps = jobs(tmp_path / "unbroken"), jobs(tmp_path / "broken")
    for of_kind in steps:
        for k in range(3):
            for step in of_kind.values():
                step(*pictures(k))
    state = steps[1]["discriminator"].state_dict()
    steps[1]["discriminator"] = again = apart(
        model(), exchange_every=1, module="discriminator", folder=tmp_path / "broken"
    )
    again.load_state_dict(state)
    for of_kind in steps:
        for k in range(3, 5):
            for step in of_kind.values():
                step(*pictures(k))
    for module in MODULES:
        assert same(*(of_kind[module].model.state_dict() for of_kind in steps)), module


def test_a_partner_that_writes_no_more_is_named_and_one_that_is_done_is_not(tmp_path):
    step, gone, done = (jobs(tmp_path)[module] for module in ("translator", "autoencoder", "discriminator"))
    step.patience_s = 0.0
    done.finish()
    with pytest.warns(StalePartnerWarning, match="autoencoder.*it has written none so far"):
        step(*pictures(0))
    gone.exchange()
    step(*pictures(1))
    with pytest.warns(StalePartnerWarning, match="autoencoder.*its weights of step 0 are used") as said:
        step(*pictures(2))
    assert len(said) == 1


def test_damaged_weights_and_those_of_another_model_are_refused(tmp_path):
    step = apart(model(), exchange_every=1, module="translator", folder=tmp_path)
    (tmp_path / "autoencoder").mkdir()
    (tmp_path / "autoencoder" / FILE).write_bytes(b"cut off")
    with pytest.raises(labkit.LabkitError, match="autoencoder/weights.pt: .*it is damaged"):
        step(*pictures(0))
    other = apart(model(ndf=8), exchange_every=1, module="autoencoder", folder=tmp_path)
    with pytest.raises(labkit.LabkitError, match="translator trains a model with other settings: .*'ndf': 4"):
        other.finish()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (dict(exchange_every=0), "exchange_every=0"),
        (dict(exchange_every=1), "a process for each of them, and there are 1"),
        (dict(exchange_every=1, module="translater", folder="x"), "did you mean 'translator'"),
    ],
)
def test_bad_arguments_are_refused(arguments, message):
    with pytest.raises(labkit.LabkitError, match=f"(?i){message}"):
        apart(model(), **arguments)


def test_other_models_and_speedups_that_run_all_players_are_refused(tiny):
    with pytest.raises(labkit.LabkitError, match="Only the modules of a DeviationGAN"):
        apart(tiny(), exchange_every=1)
    with pytest.raises(labkit.LabkitError, match="'graph' overrides"):
        apart(model(), "graph", exchange_every=1)
    with pytest.raises(labkit.LabkitError, match="There is one process"):
        averaged(model(), average_every=1)


def test_ranks_that_average_over_the_same_pictures_are_one_process(alike):
    step = labkit.make_step(model(pool_size=0))
    losses = trained(step, 0, 6)
    for mine, right in zip(alike["same"]["losses"], losses, strict=True):
        assert mine == pytest.approx(right, rel=1e-12)
    weights = step.model.state_dict()
    for name, weight in weights.items():
        if not BEFORE_A_NORM(name):
            assert (alike["same"]["weights"][name] - weight).norm() <= 1e-9 * weight.norm(), name


# Biases before an instance norm have no true gradient, only rounding, which Adam magnifies.
BEFORE_A_NORM = re.compile(r"T_A.blocks..*bias|D_A.model.[03].bias").fullmatch


def test_ranks_drift_apart_until_they_average(alike):
    assert alike["apart after 1"] > 0 and alike["apart after 2"] > 0 and alike["apart after 4"] > 0
    assert alike["apart after 3"] == 0


def test_averaging_goes_on_where_it_was_saved(alike):
    assert same(alike["own"], alike["resumed"])
    ranks = alike["saved"]["averaged"]["ranks"]
    for name, mean in alike["saved"]["model"].items():
        torch.testing.assert_close(mean, sum(of_rank["model"][name] for of_rank in ranks.values()) / 3)


def test_an_outer_step_of_length_1_is_the_mean_and_diloco_s_goes_on_in_its_direction(alike):
    assert same(alike["plain"].keys(), alike["outer"].keys())
    moved = lambda name: torch.cat([(alike[name][key] - first).flatten() for key, first in alike["first"].items()])  # noqa: E731
    torch.testing.assert_close(moved("outer"), moved("plain"))
    assert not torch.allclose(moved("diloco"), moved("plain"))
    assert torch.cosine_similarity(moved("diloco"), moved("plain"), dim=0) > 0.9
