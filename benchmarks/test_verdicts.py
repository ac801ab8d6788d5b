"""Wrong steps that `labkit.compare` names, and honest ones that it accuses, of all that we could think of."""

import itertools
import re

import pytest
import torch
from test_compare_catches import FOOLS, VERY_SMALL, AdamByHand, Bf16Declared, OnlyFloat32, WithOwnAdam, equivalence_of

import labkit
from labkit.variants.registry import SPEEDUPS

ACTING = ["batched", "fused_adam", "out_of_place", "channels_last", "accumulate", "recompute", "bf16", "fp16"]


def cyclegan(**settings):
    torch.manual_seed(0)
    return labkit.CycleGAN(**{"generator": "resnet_3blocks", "discriminator": "n_layers", "n_layers": 2, **settings})


def deviation(**settings):
    torch.manual_seed(0)
    return labkit.DeviationGAN(**settings)


def batch(n, size=32):
    random = torch.Generator().manual_seed(0)
    return tuple(torch.rand(n, 3, size, size, generator=random) * 2 - 1 for _ in range(2))


@pytest.fixture(autouse=True, scope="module")
def computes_in_16_bits():
    """What 16-bit speed-ups compute is the same on a processor that only emulates 16 bits, where they are refused."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("labkit.devices.emulates", lambda dtype: False)
        yield


@pytest.fixture(scope="module")
def models(computes_in_16_bits):
    """For each kind of model a check of its steps, and a model."""
    kinds = {
        "CycleGAN": (cyclegan, batch(2, size=16), VERY_SMALL),
        "wider, larger pictures": (cyclegan, batch(2, size=64), dict(ngf=8, ndf=8, pool_size=20)),
        "batch norm": (cyclegan, batch(2), dict(ngf=4, ndf=4, norm="batch")),
        "no norm": (cyclegan, batch(2), dict(ngf=4, ndf=4, norm="none")),
        "vanilla": (cyclegan, batch(2), dict(ngf=4, ndf=4, gan_mode="vanilla")),
        "DeviationGAN": (deviation, batch(2), dict(ngf=4, ndf=4, blocks=1)),
    }
    return {
        kind: (equivalence_of(make, pictures, **small), make(**small))
        for kind, (make, pictures, small) in kinds.items()
    }


def suits(stack, model):
    """Whether these speed-ups can be stacked on a step of this model."""
    named = [SPEEDUPS[name] for name in stack if isinstance(name, str)]
    excluded = any(other in one.excludes for one in named for other in stack)
    return not excluded and not any(one.why_unsuited(model) for one in named)


def test_wrong_steps_are_named(models, report):
    missed = {}
    for fool, part in FOOLS.items():
        reason = models["CycleGAN"][0](fool, in_float32=issubclass(fool, OnlyFloat32)) or ""
        if not re.match(part, reason):
            missed[fool.__name__] = reason
    report(wrong=len(FOOLS), named=len(FOOLS) - len(missed), missed=missed)
    assert not missed


def test_honest_steps_are_not_accused(models, report):
    stacks = [(), *((name,) for name in ACTING), *itertools.combinations(ACTING, 2)]
    stacks += [(AdamByHand,), (WithOwnAdam,), (OnlyFloat32,), (OnlyFloat32, "channels_last"), (Bf16Declared,)]
    accused, judged = {}, 0
    for kind, (judge, model) in models.items():
        for stack in stacks:
            if suits(stack, model):
                judged += 1
                if reason := judge(*stack, in_float32=OnlyFloat32 in stack):
                    accused[f"{kind}: {stack}"] = reason
    report(honest=judged, accused=accused)
    assert not accused
