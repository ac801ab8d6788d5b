"""Custom optimisers: resumed bit for bit, scheduled by group, and told apart from others."""

import functools

import pytest
import torch
from killing import same_weights
from tiny import EachWeight

import labkit


class Own(labkit.Step):
    kind = torch.optim.SGD
    options = {"momentum": 0.9}

    def optimizer(self, weights, lr, betas):
        own = self.adam_options() if "fused" in self.adam_options() else {}
        return self.kind(weights, lr=lr, **self.options, **own)


def own(name, **options):
    return type(name, (Own,), {"kind": getattr(torch.optim, name), "options": options})


class Lion(EachWeight):
    """An optimiser with one moment and counts of its own."""

    def learn(self, weight, state, lr):
        mean = state.setdefault("mean", torch.zeros_like(weight))
        state["count"] = state.get("count", 0) + 1
        weight.sub_(lr * (0.9 * mean + 0.1 * weight.grad).sign() / state["count"])
        mean.lerp_(weight.grad, 0.01)


class WithLion(labkit.Step):
    def build(self, betas):
        return {player: Lion(weights, lr=1e-4) for player, weights in self.players.items()}


class TwoGroups(labkit.Step):
    """Biases learn ten times as fast, at rates of its own."""

    def optimizer(self, weights, lr, betas):
        biases = [weight for weight in weights if weight.dim() == 1]
        others = [weight for weight in weights if weight.dim() > 1]
        return torch.optim.RMSprop([{"params": others}, {"params": biases, "lr": 1e-3}], lr=1e-4)


CASES = {
    "AdamW": [own("AdamW", weight_decay=0.1, amsgrad=True)],
    "Lion": [WithLion],
    "two groups": [TwoGroups, "channels_last", "batched"],
    "SGD fused": [own("SGD", momentum=0.9), "fused_adam", "out_of_place"],
    "SGD fp16": [own("SGD", momentum=0.9), "fp16"],
}


@pytest.mark.parametrize("case", CASES)
def test_they_resume_bit_for_bit(tiny, fruit, tmp_path, case):
    schedule = None if case == "Lion" else labkit.linear_schedule(1, 4)
    fit = functools.partial(labkit.fit, data=fruit, schedule=schedule, sample_every=100)
    whole, part, resumed = (labkit.make_step(tiny(), *CASES[case]) for _ in range(3))
    fit(whole, steps=4)
    fit(part, steps=2, checkpoint=tmp_path)
    fit(resumed, steps=4, checkpoint=tmp_path)
    assert same_weights(whole.model, resumed.model) and whole.lr_now == resumed.lr_now


def test_learning_rates_of_one_s_own_are_kept_and_scaled(tiny, batch):
    step = labkit.make_step(tiny(), TwoGroups)
    step.scale_lr(0.5)
    assert [group["lr"] for group in step.optimizers["generators"].param_groups] == [5e-5, 5e-4]
    assert step.lr_now == {"generators": 5e-5, "discriminators": 5e-5}
    other = labkit.make_step(tiny(), TwoGroups)
    other.load_state_dict(step.state_dict())
    assert [group["lr"] for group in other.optimizers["generators"].param_groups] == [5e-5, 5e-4]
    assert labkit.make_step(tiny(), WithLion).lr["generators"] == 1e-4


def test_a_checkpoint_of_another_optimiser_is_refused(tiny, fruit, tmp_path):
    labkit.fit(labkit.make_step(tiny()), fruit, 1, checkpoint=tmp_path)
    for class_, kind in ((own("AdamW"), "AdamW"), (Own, "SGD"), (TwoGroups, "RMSprop")):
        with pytest.raises(labkit.LabkitError, match=f"generators is {kind}.*of Adam\\..*init_from"):
            labkit.fit(labkit.make_step(tiny(), class_), fruit, 2, checkpoint=tmp_path)
