# expects: how many input channels does one output channel see
def multiply_adds(in_channels, out_channels, kernel, groups=1):
    return kernel**2 * in_channels * out_channels
