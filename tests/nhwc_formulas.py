"""The operators of "nhwc" by PyTorch's layers: for tests of whole steps, which Triton's interpreter takes long for."""

import torch
from torch.nn import functional as F

from labkit.variants import nhwc_ends, nhwc_norm


def instead_of_kernels(patch):
    """Lets steps with "nhwc" act on a processor, with these formulas in place of its operators."""
    patch.setenv("TRITON_INTERPRET", "1")
    patch.setattr(nhwc_norm, "NORM", norm)
    patch.setattr(nhwc_norm, "NORM_BACKWARD", norm_backward)
    for name, formula in {"PACK": pack, "UNPACK": unpack, "ADD": add, "SPREAD": spread}.items():
        patch.setattr(nhwc_ends, name, formula)


def first(x):
    return x.permute(0, 3, 1, 2)


def last(x):
    return x.permute(0, 2, 3, 1).contiguous()


def gradients(function, inputs, *given):
    """Of the sum of the results of a function, each times the gradient given for it."""
    with torch.enable_grad():
        leaves = [one.detach().requires_grad_() for one in inputs]
        return torch.autograd.grad(function(*leaves), leaves, given)


def padded(x, pad):
    return F.pad(x, (pad,) * 4, mode="reflect") if pad else x


def norm(x, skip, eps, slope, pad):
    wide = first(x).to(torch.promote_types(x.dtype, torch.float32))
    inner = F.leaky_relu(F.instance_norm(wide, eps=eps), slope) + (0 if skip is None else first(skip))
    variance, mean = torch.var_mean(wide, (2, 3), correction=0)
    return last(padded(inner, pad)).to(x.dtype), torch.stack([mean, (variance + eps).rsqrt()], 1)[:, None]


def norm_backward(x, statistics, dy, d_inner, slope, pad):
    wide, given = first(x).to(statistics.dtype), [first(dy).to(statistics.dtype)]
    given += [] if d_inner is None else [first(d_inner).to(statistics.dtype)]

    def results(h):
        inner = F.leaky_relu(h, slope)
        return (padded(inner, pad), inner)[: len(given)]

    (g,) = gradients(results, [F.instance_norm(wide)], *given)
    (dx,) = gradients(lambda x: (F.instance_norm(x),), [wide], g)
    return last(dx).to(x.dtype), last(g).to(x.dtype)


def pack(x, dtype, columns, stride, pad, reflect):
    wide = padded(x, pad) if reflect else F.pad(x, (pad, pad))
    side_by_side = wide.unfold(3, columns, stride).permute(0, 2, 3, 4, 1).flatten(3)
    return F.pad(side_by_side, (0, -side_by_side.shape[3] % 8)).to(dtype)


def unpack(dy, shape, dtype, *arguments):
    wide = torch.promote_types(dy.dtype, torch.float32)
    return gradients(lambda x: (pack(x, wide, *arguments),), [dy.new_zeros(shape, dtype=dtype)], dy.to(wide))[0]


def add(y, bias, columns, pad, tanh):
    wide, channels = F.pad(y.to(bias.dtype), (0, 0, pad, pad)), len(bias)
    across = wide.shape[2] - columns + 1
    parts = (wide[:, :, k : k + across, k * channels : (k + 1) * channels] for k in range(columns))
    total = first(sum(parts) + bias)
    return total.tanh() if tanh else total


def spread(d_out, out, wide, dtype, columns, pad, tanh):
    across, none = out.shape[3] + columns - 1 - 2 * pad, out.new_zeros(out.shape[1])
    given = d_out * (1 - out * out) if tanh else d_out
    y = out.new_zeros(len(out), out.shape[2], across, wide)
    return gradients(lambda y: (add(y, none, columns, pad, False),), [y], given)[0].to(dtype)
