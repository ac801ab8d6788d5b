# expects: There are bytes to move, too
def roofline_seconds(flops, bytes_moved, flops_per_s, bytes_per_s):
    return flops / flops_per_s
