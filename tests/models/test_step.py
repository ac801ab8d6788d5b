"""The baseline step is the reference's update, and every seam of it can be changed."""

import pytest
import torch
from plain_loop import twin
from torch.nn.utils import parameters_to_vector

import labkit

LOOPS = {
    "vanilla": (1, 16, 3, dict(gan_mode="vanilla", lambda_a=3.0, lambda_b=7.0, discriminator="pixel")),
    "wgangp": (1, 16, 3, dict(gan_mode="wgangp", lambda_identity=0.0, discriminator="n_layers", n_layers=1)),
    "lsgan": (3, 16, 2, dict(lambda_identity=1.5, discriminator="n_layers", n_layers=2)),
    "no pool": (1, 24, 0, dict(discriminator="basic")),
    "a pool that is never full": (3, 24, 50, dict(discriminator="basic")),
}


@pytest.mark.parametrize(("n", "size", "pool_size", "settings"), LOOPS.values(), ids=LOOPS)
def test_twenty_steps_equal_an_independent_plain_loop_bit_for_bit(tiny, batch, n, size, pool_size, settings):
    model = tiny(**settings, pool_size=pool_size, norm="instance", ngf=2, ndf=2).double()
    loop, step = twin(model, 2e-4, pool_size or 10**9), labkit.make_step(model)  # a list never full gives back all
    for seed in range(20):
        real = batch(n, size=size, seed=seed, dtype=torch.float64)
        ours, plain = step(*real), loop(*real)
        assert ours.keys() == plain.keys()
        assert all(ours[name] == loss for name, loss in plain.items()), f"step {seed}"
    for name, network in model.named_children():
        assert torch.equal(*(parameters_to_vector(one.parameters()) for one in (network, getattr(loop, name)))), name


def test_a_player_leaves_the_other_s_weights_alone(tiny, batch):
    step = labkit.make_step(tiny())
    real_a, real_b = batch()
    step.learn("generators", {"real_a": real_a, "real_b": real_b})
    assert all(weight.grad is None for weight in step.players["discriminators"])
    assert all(weight.grad is not None for weight in step.players["generators"])


def test_classes_of_one_s_own_change_a_seam_and_the_first_is_outermost(tiny, batch):
    def changed(function):
        class Seam:
            def losses(self, player, batch):
                return {name: function(loss) for name, loss in super().losses(player, batch).items()}

        return Seam

    plain, step = labkit.make_step(tiny()), labkit.make_step(tiny(), changed(lambda x: x + 1), changed(lambda x: 2 * x))
    assert step(*batch())["cycle_A"] == 2 * plain(*batch())["cycle_A"] + 1


def test_each_player_learns_at_its_own_rate(tiny, fruit, tmp_path):
    rates = {"discriminators": 1e-4, "generators": 3e-4}
    step = labkit.make_step(tiny(), lr=rates)
    labkit.fit(step, fruit, 1, checkpoint=tmp_path, schedule=labkit.linear_schedule(0, 1))
    assert step.lr_now == {"generators": 1.5e-4, "discriminators": 5e-5}
    resumed = labkit.make_step(tiny(), lr=rates)
    labkit.fit(resumed, fruit, 2, checkpoint=tmp_path, schedule=labkit.linear_schedule(2, 0))
    assert {player: adam.param_groups[0]["lr"] for player, adam in resumed.optimizers.items()} == rates


def test_a_rate_changed_in_a_step_that_was_made_is_refused(tiny, batch):
    step = labkit.make_step(tiny())
    step.lr["generators"] /= 2
    with pytest.raises(labkit.LabkitError, match=r"step\.lr was changed.*make_step\(model, lr=\.\.\.\)"):
        step(*batch())


def test_a_player_without_weights_to_train_is_named(tiny):
    model = tiny()
    model.D_A.requires_grad_(False)
    labkit.make_step(model)
    model.D_B.requires_grad_(False)
    with pytest.raises(labkit.LabkitError, match="all weights of the discriminators are frozen"):
        labkit.make_step(model)
