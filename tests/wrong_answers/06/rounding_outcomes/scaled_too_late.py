# expects: what float16 has flushed, no scale brings back
def rounding_outcomes(gradients, scale):
    gradients = gradients[gradients != 0]
    size = (gradients.half() * scale).abs()
    subnormal = (size > 0) & (size < torch.finfo(torch.float16).tiny)
    shares = {"flushed": size == 0, "subnormal": subnormal, "overflowed": size.isinf()}
    return {fate: share.double().mean().item() for fate, share in shares.items()}
