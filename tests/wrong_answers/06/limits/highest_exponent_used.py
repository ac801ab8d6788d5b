# expects: kept for inf and nan
def limits(exponent_bits, mantissa_bits):
    largest = 2 ** (exponent_bits - 1)
    eps = 2.0**-mantissa_bits
    tiny = 2.0 ** (2 - largest)
    return {"eps": eps, "max": (2 - eps) * 2.0**largest, "tiny": tiny, "smallest": tiny * eps}
