"""Autocast on the meta device beside PyTorch's own, which takes tensors that only say they are on CUDA."""

import re

import pytest
import torch
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.nn import functional as F
from torch.utils._python_dispatch import TorchDispatchMode

from labkit.errors import LabkitError
from labkit.simulate import autocast, predict, program_operators
from labkit.simulate.as_on_gpu import as_on_gpu

ONLY_ON_CUDA = {"_cudnn_rnn", "cudnn_convolution", "cudnn_convolution_transpose"}  # the meta device calls none of these
NOT_IN_THE_HEADER = {"linalg_matrix_sqrth", "norm.names_ScalarOpt_dim"}  # few programs call them
BANNED = "binary_cross_entropy"
PROGRAMS = {
    "@": lambda x, w: (x @ w) @ w,
    "einsum": lambda x, w: torch.einsum("bij,jk->bik", x, w),
    "baddbmm": lambda x, w: torch.baddbmm(x, x, x),
    "attention": lambda x, w: F.scaled_dot_product_attention(x[None], x[None], x[None]),
    "layers": lambda x, w: nn.TransformerEncoderLayer(32, 4, 64, dropout=0.0)(nn.Conv1d(32, 32, 1)(x)),
    "labels": lambda x, w: F.cross_entropy(x[0] @ w, torch.zeros(32, dtype=torch.long)),
    "types": lambda x, w: (x @ w).softmax(-1, torch.float64).sum() + (x.double() @ w.double()).sum() + (x @ w).sum(),
    "widest": lambda x, w: torch.addcmul(x, x @ w, x @ w) + torch.addcmul(x.half(), x.half(), x.half()),
    "norms": lambda x, w: F.layer_norm(F.group_norm(x @ w, 4), [32]) + torch.linalg.vector_norm(x @ w),
    "no gradients": lambda x, w: (torch.no_grad()(lambda: x @ w)(), x @ w),
    "nested": lambda x, w: (torch.autocast("cuda", enabled=False)(lambda: x @ w)(), w @ w, uncached(lambda: w @ w)),
}


def uncached(run):
    with torch.autocast("cuda", torch.float16, cache_enabled=False):
        return run()


class Results(TorchDispatchMode):
    """Collects the type of each operator's first result."""

    def __init__(self):
        super().__init__()
        self.seen = []

    def __torch_dispatch__(self, operator, types, args=(), kwargs=None):
        result = operator(*args, **(kwargs or {}))
        if operator.namespace == "aten" and operator is not torch.ops.aten.detach.default:  # FakeTensorMode adds some
            self.seen.append((operator.name(), getattr(result, "dtype", None)))
        return result


def types_in(program, device):
    with torch.device(device), torch.autocast("cuda", torch.float16), Results() as results:
        program(torch.empty(8, 32, 32), torch.empty(32, 32, requires_grad=True))
    return results.seen


@pytest.mark.parametrize("program", PROGRAMS.values(), ids=PROGRAMS)
def test_each_operator_has_the_type_that_it_has_on_cuda(program):
    with as_on_gpu():
        ours = types_in(program, "meta")
    with FakeTensorMode(), as_on_gpu():
        assert types_in(program, "cuda") == ours and torch.float16 in dict(ours).values()


def test_every_operator_that_pytorch_casts_on_cuda_has_the_rule_of_its_header():
    theirs = {name.removeprefix("aten::") for name in registered("AutocastCUDA")} - ONLY_ON_CUDA - NOT_IN_THE_HEADER
    assert theirs == autocast.rules().keys() - autocast.OTHERS.keys() | {"norm.Scalar", "norm.ScalarOpt_dim", BANNED}
    header = autocast.HEADER.read_text(encoding="utf-8")
    for rule in ("LOWER_PRECISION_FP", "FP32", "FP32_SET_OPT_DTYPE", "PROMOTE"):
        listed = header.partition(f"#define AT_FORALL_{rule}(_)")[2].partition("#")[0]
        names = {entry.replace(", ", ".") for entry in re.findall(r"_\((.*?)\)", listed)}
        assert names and {autocast.rules()[name] for name in names} == {rule}


def registered(key):
    return torch._C._dispatch_get_registrations_for_dispatch_key(key)


@pytest.mark.parametrize("layer", [nn.LSTM, nn.GRU, nn.RNN])
def test_recurrent_layers_multiply_in_16_bits_as_cudnns_do(layer):
    with torch.device("meta"), as_on_gpu(), torch.autocast("cuda", torch.bfloat16):
        operators = program_operators(lambda: layer(8, 8)(torch.empty(3, 2, 8)))
    assert {one.dtype for one in operators if one.flops} == {"bfloat16"}


def test_a_loss_that_autocast_refuses_and_a_scaler_are_as_on_cuda():
    with torch.device("meta"):
        layer, x = nn.Linear(8, 8), torch.empty(4, 8)
    adam, scaler = torch.optim.Adam(layer.parameters()), torch.amp.GradScaler("meta")

    def step(loss):
        with torch.autocast("cuda", torch.float16):
            scaler.scale(loss(layer(x).sigmoid(), x)).backward()
        scaler.step(adam)
        scaler.update()

    assert predict(lambda: step(F.mse_loss), device="T4", graph=True)["SIMULATED_ms"].item() > 0
    with pytest.raises(LabkitError, match="unsafe to autocast"):
        predict(lambda: step(F.binary_cross_entropy))
