# expects: in both directions
def multiply_adds(in_channels, out_channels, kernel, groups=1):
    return kernel * in_channels * out_channels // groups
