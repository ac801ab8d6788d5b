# expects: need not be zero
def rounding_outcomes(gradients, scale):
    gradients = gradients[gradients != 0]
    size = (gradients * scale).abs()
    limits = torch.finfo(torch.float16)
    subnormal = size < limits.tiny
    return {
        "flushed": subnormal.double().mean().item(),
        "subnormal": subnormal.double().mean().item(),
        "overflowed": (size > limits.max).double().mean().item(),
    }
