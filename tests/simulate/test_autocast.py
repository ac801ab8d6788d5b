"""Autocast on the meta device beside PyTorch's own, which takes tensors that only say they are on CUDA."""

import re

import pytest
import torch
from operators import Operators
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.nn import functional as F

from labkit.simulate import autocast, predict, program_operators
from labkit.simulate.as_on_gpu import as_on_gpu

NEVER_ON_META = {"_cudnn_rnn", "cudnn_convolution", "cudnn_convolution_transpose"}
NOT_IN_THE_HEADER = {"linalg_matrix_sqrth", "norm.names_ScalarOpt_dim"}  # few programs call them
OFF, UNCACHED = {"enabled": False}, {"cache_enabled": False}
PROGRAMS = [
    lambda x, w: torch.baddbmm(torch.einsum("bij,jk->bik", x, w), x @ w @ w, x),
    lambda x, w: nn.TransformerEncoderLayer(32, 4, 64, dropout=0.0)(nn.Conv1d(32, 32, 1)(x)),
    lambda x, w: F.cross_entropy(x[0] @ w, torch.zeros(32, dtype=torch.long)),
    lambda x, w: (x @ w).softmax(-1, torch.float64).sum() + (x.double() @ w.double()).sum() + (x @ w).sum(),
    lambda x, w: torch.addcmul(x, x @ w, x @ w) + torch.addcmul(x.half(), x.half(), x.half()),
    lambda x, w: F.layer_norm(F.group_norm(x @ w, 4), [32]) + torch.linalg.vector_norm(x @ w),
    lambda x, w: [torch.autocast("cuda", **how)(torch.no_grad()(torch.mm))(w, w) for how in (OFF, UNCACHED, {}, {})],
]


@pytest.mark.parametrize("program", PROGRAMS)
def test_each_operator_has_the_type_that_it_has_on_cuda(program):
    def types_on(device):
        seen = []

        def note(operator, arguments, result):
            if operator.namespace == "aten" and operator is not torch.ops.aten.detach.default:  # FakeTensorMode's own
                seen.append((operator.name(), getattr(result, "dtype", None)))

        with torch.device(device), torch.autocast("cuda", torch.float16), Operators(note):
            program(torch.empty(8, 32, 32), torch.empty(32, 32, requires_grad=True))
        return seen

    with as_on_gpu():
        ours = types_on("meta")
    with FakeTensorMode(), as_on_gpu():
        assert types_on("cuda") == ours and torch.float16 in dict(ours).values()


def test_every_operator_that_pytorch_casts_on_cuda_has_the_rule_of_its_header():
    found = torch._C._dispatch_get_registrations_for_dispatch_key("AutocastCUDA")
    theirs = {name.removeprefix("aten::") for name in found if name.startswith("aten::")}
    assert theirs - NEVER_ON_META - NOT_IN_THE_HEADER == autocast.rules().keys() - set(autocast.RECURRENT)
    header = autocast.HEADER.read_text(encoding="utf-8")
    for rule in ("LOWER_PRECISION_FP", "FP32", "FP32_SET_OPT_DTYPE", "PROMOTE"):
        listed = re.findall(r"_\((.*?)\)", header.partition(f"#define AT_FORALL_{rule}(_)")[2].partition("#")[0])
        assert {autocast.rules()[name.replace(", ", ".")] for name in listed} == {rule}


def test_recurrent_layers_multiply_in_16_bits_as_cudnns_do():
    with torch.device("meta"), as_on_gpu(), torch.autocast("cuda", torch.bfloat16):
        layers = [layer(8, 8) for layer in (nn.LSTM, nn.GRU, nn.RNN)]
        operators = program_operators(lambda: [layer(torch.empty(3, 2, 8)) for layer in layers])
    assert {one.dtype for one in operators if one.flops} == {"bfloat16"}


def test_a_scaler_made_for_the_meta_device_lets_the_optimizer_step():
    layer, scaler = nn.Linear(8, 8, device="meta"), torch.amp.GradScaler("meta")
    adam = torch.optim.Adam(layer.parameters())

    def step():
        scaler.scale(layer(torch.empty(4, 8, device="meta")).sum()).backward()
        scaler.step(adam)
        scaler.update()

    assert predict(step, device="T4", graph=False)["launches"].item() > 12  # the layer's and the scaler's alone
