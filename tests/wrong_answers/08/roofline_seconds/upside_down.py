# expects: work divided by the rate
def roofline_seconds(flops, bytes_moved, flops_per_s, bytes_per_s):
    return max(flops_per_s / (flops + 1), bytes_per_s / bytes_moved)
