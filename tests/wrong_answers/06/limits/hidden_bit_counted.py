# expects: is not stored
def limits(exponent_bits, mantissa_bits):
    largest = 2 ** (exponent_bits - 1) - 1
    eps = 2.0 ** -(mantissa_bits + 1)
    tiny = 2.0 ** (1 - largest)
    return {"eps": eps, "max": (2 - eps) * 2.0**largest, "tiny": tiny, "smallest": tiny * eps}
