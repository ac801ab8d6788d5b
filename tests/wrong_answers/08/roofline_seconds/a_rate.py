# expects: That is a rate
def roofline_seconds(flops, bytes_moved, flops_per_s, bytes_per_s):
    return min(flops_per_s, flops / bytes_moved * bytes_per_s)
