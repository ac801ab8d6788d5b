# expects: Done is what has been computed and moved
def roofline_seconds(flops, bytes_moved, flops_per_s, bytes_per_s):
    return min(flops / flops_per_s, bytes_moved / bytes_per_s)
