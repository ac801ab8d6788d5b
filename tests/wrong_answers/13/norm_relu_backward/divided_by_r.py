# expects: 1 / deviation already
def norm_relu_backward(x, dy, dx, mean, rstd, n, BLOCK: tl.constexpr):
    """Writes the gradient of x to dx."""
    plane = tl.program_id(0)
    m, r = tl.load(mean + plane), tl.load(rstd + plane)
    sum_g, sum_gh = 0.0, 0.0
    for start in range(0, n, BLOCK):
        i = start + tl.arange(0, BLOCK)
        h = (tl.load(x + plane * n + i, mask=i < n, other=0.0) - m) * r
        g = tl.where(h > 0, tl.load(dy + plane * n + i, mask=i < n, other=0.0), 0.0)
        sum_g += tl.sum(g)
        sum_gh += tl.sum(g * h)
    for start in range(0, n, BLOCK):
        i = start + tl.arange(0, BLOCK)
        h = (tl.load(x + plane * n + i, mask=i < n, other=0.0) - m) * r
        g = tl.where(h > 0, tl.load(dy + plane * n + i, mask=i < n, other=0.0), 0.0)
        tl.store(dx + plane * n + i, (g - sum_g / n - h * sum_gh / n) / r, mask=i < n)
