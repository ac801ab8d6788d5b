# expects: do not take turns
def roofline_seconds(flops, bytes_moved, flops_per_s, bytes_per_s):
    return flops / flops_per_s + bytes_moved / bytes_per_s
