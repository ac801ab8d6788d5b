# expects: leave the zeros out first
def rounding_outcomes(gradients, scale):
    size = (gradients * scale).half().abs()
    subnormal = (size > 0) & (size < torch.finfo(torch.float16).tiny)
    shares = {"flushed": size == 0, "subnormal": subnormal, "overflowed": size.isinf()}
    return {fate: share.double().mean().item() for fate, share in shares.items()}
