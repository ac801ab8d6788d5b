"""Layers that somebody has changed: every speed-up computes what the baseline does, or refuses the model, with a name.

Changes, places and stacks of speed-ups meet. Each is tried before the step is made, and hooks after it, too.
"""

import functools
import itertools
import re

import pytest
import torch
from nhwc_formulas import instead_of_kernels
from tiny import assert_close
from torch import nn
from torch.nn.utils import parametrizations, parametrize, prune, spectral_norm, weight_norm

import labkit
from labkit.variants import winograd

STACKS = [("nhwc",), ("winograd", "subpixel", "out_of_place", "channels_last"), ("batched",), ("recompute",)]
OF_WEIGHTS = {
    "spectral norm": spectral_norm,
    "weight norm": weight_norm,
    "parametrized spectral norm": parametrizations.spectral_norm,
    "parametrized weight norm": parametrizations.weight_norm,
    "parametrization": lambda layer: parametrize.register_parametrization(layer, "weight", nn.Tanh()),
    "pruned": lambda layer: prune.l1_unstructured(layer, "weight", 0.3),
    "another type": lambda layer: layer.float().register_forward_pre_hook(lambda layer, given: given[0].float()),
    "weight frozen": lambda layer: layer.weight.requires_grad_(False),
}
HOOKS = {
    "forward hook": lambda layer: layer.register_forward_hook(lambda layer, given, made: 1.5 * made + 0.1),
    "pre-hook": lambda layer: layer.register_forward_pre_hook(lambda layer, given: 1.5 * given[0] + 0.1),
    "backward hook": lambda layer: layer.register_full_backward_pre_hook(lambda layer, given: (1.5 * given[0],)),
    "method": lambda layer: setattr(layer, "forward", lambda x: 1.5 * type(layer).forward(layer, x)),
}
ANYWHERE = HOOKS | {
    "subclass": lambda layer: setattr(layer, "__class__", twice(type(layer))),
    "foreign weight": lambda layer: layer.register_parameter("foreign", nn.Parameter(torch.ones(2).double())),
    "foreign buffer": lambda layer: layer.register_buffer("foreign", torch.ones(2)),
    "frozen": lambda layer: layer.requires_grad_(False),
}
CONVOLUTIONS = {"G_A.model.10.conv_block.5", "D_A.model.5", "G_A.model.20"}
PLACES = {"G_B.model.10.conv_block.4", "G_A.model.2", "D_B.model.4", "G_B.model.10.conv_block", "G_A", *CONVOLUTIONS}
CHANGED = [
    *itertools.product(ANYWHERE, sorted(PLACES), [False]),
    *itertools.product(HOOKS, sorted(PLACES), [True]),
    *itertools.product(OF_WEIGHTS, sorted(CONVOLUTIONS), [False]),
]


def twice(kind):
    return type(kind.__name__, (kind,), {"forward": lambda self, x: 2 * kind.forward(self, x)})


def trained(tiny, batch, how, place, later, names):
    """The losses of three updates of a changed model and the weights after them, or the error."""
    model = tiny(n_layers=2, ngf=8, ndf=8).double()
    change, layer = (ANYWHERE | OF_WEIGHTS)[how], model.get_submodule(place)
    torch.manual_seed(1)
    try:
        later or change(layer)
        step = labkit.make_step(model, *names)
        later and change(layer)
        losses = [step(*batch(2, 16, seed, torch.float64)) for seed in range(3)]
    except (labkit.LabkitError, RuntimeError) as error:
        return error
    return losses, model.state_dict()


right = functools.cache(functools.partial(trained, names=()))


CASES = [
    pytest.param(names, *change, marks=[pytest.mark.slow] * (k > 0), id=f"{'+'.join(names)} {change}")
    for k, names in enumerate(STACKS)
    for change in CHANGED[:: 1 if k < 2 else 3]  # those that replace layers meet all
]


@pytest.mark.parametrize(("names", "how", "place", "later"), CASES)
@pytest.mark.filterwarnings("ignore")
def test_a_changed_layer_counts_or_is_refused(tiny, batch, monkeypatch, how, place, later, names):
    instead_of_kernels(monkeypatch)
    monkeypatch.setattr(winograd, "PIXELS", 0)
    monkeypatch.setattr(winograd, "NUMBERS", 0)
    mine = trained(tiny, batch, how, place, later, names)
    if isinstance(mine, labkit.LabkitError):
        assert re.search(place.split(".")[0], str(mine))
        return
    plain = right(tiny, batch, how, place, later)
    if isinstance(plain, RuntimeError):  # the baseline itself cannot: a hook before an activation in place
        return
    for losses, expected in zip(mine[0], plain[0], strict=True):
        assert_close(losses, expected, 1e-9, how)
    for name, weight in plain[1].items():
        if not re.match(r"G_..model.(?!20).*bias|D_..model.[25].bias", name):  # these have no gradient but rounding
            assert (mine[1][name] - weight).norm() <= 1e-9 * weight.norm(), name
