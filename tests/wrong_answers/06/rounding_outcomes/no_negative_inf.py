# expects: Is -inf counted as well
def rounding_outcomes(gradients, scale):
    gradients = gradients[gradients != 0]
    size = (gradients * scale).half()
    subnormal = (size != 0) & (size.abs() < torch.finfo(torch.float16).tiny)
    shares = {"flushed": size == 0, "subnormal": subnormal, "overflowed": size == float("inf")}
    return {fate: share.double().mean().item() for fate, share in shares.items()}
