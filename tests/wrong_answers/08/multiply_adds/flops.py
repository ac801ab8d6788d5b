# expects: counts once
def multiply_adds(in_channels, out_channels, kernel, groups=1):
    return 2 * kernel**2 * in_channels * out_channels // groups
