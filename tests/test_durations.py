"""Durations by signature: those of the operators that a replay plays, and the step stays as it was."""

import copy

import torch
from killing import same

import labkit
from labkit.simulate import replay, step_operators
from tools.survey_items import operator_durations


def test_nearly_every_operator_of_a_replay_has_a_duration(tiny, batch):
    step = labkit.make_step(tiny(), "fused_adam")
    step(*batch(seed=1))
    before = copy.deepcopy(step.state_dict())
    durations = operator_durations(step, batch())
    assert same(step.state_dict(), before)
    assert all(us > 0 for us in durations.values())
    operators = step_operators(tiny(), "fused_adam", size=32)
    unknown = {operator.name for operator in operators if operator.signature not in durations}
    assert unknown <= {"upload", "aten::_fused_adam_"}, "on a CPU nothing is uploaded"
    assert (
        replay(operators, 10.0, durations=durations).assumed["constants"]["share_of_kernels_with_measured_duration"]
        > 0.9
    )


def test_half_precision_has_durations_of_its_own(tiny, batch):
    plain, cast = (operator_durations(labkit.make_step(tiny(), *names), batch()) for names in ((), ("bf16",)))
    assert any("convolution" in key and "bfloat16" in key for key in cast.keys() - plain.keys())
    assert torch.get_default_dtype() == torch.float32
