# expects: rounds, to the nearest
def rounding_outcomes(gradients, scale):
    gradients = gradients[gradients != 0]
    size = (gradients * scale).abs()
    limits = torch.finfo(torch.float16)
    flushed = size < limits.smallest_normal * limits.eps
    shares = {"flushed": flushed, "subnormal": ~flushed & (size < limits.tiny), "overflowed": size > limits.max}
    return {fate: share.double().mean().item() for fate, share in shares.items()}
