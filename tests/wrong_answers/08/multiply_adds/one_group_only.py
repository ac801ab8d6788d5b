# expects: do they all compute
def multiply_adds(in_channels, out_channels, kernel, groups=1):
    return kernel**2 * (in_channels // groups) * (out_channels // groups)
