# expects: divides by zero
def roofline_seconds(flops, bytes_moved, flops_per_s, bytes_per_s):
    return flops / min(flops_per_s, flops / bytes_moved * bytes_per_s)
