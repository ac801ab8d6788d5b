# expects: n - 1 is for estimates
def norm_relu(x, y, mean, rstd, n, eps, BLOCK: tl.constexpr):
    """Writes relu(instance_norm(x)) to y, and of each plane the mean, and 1 / deviation."""
    plane = tl.program_id(0)
    total = 0.0
    for start in range(0, n, BLOCK):
        i = start + tl.arange(0, BLOCK)
        total += tl.sum(tl.load(x + plane * n + i, mask=i < n, other=0.0))
    m = total / n
    squares = 0.0
    for start in range(0, n, BLOCK):
        i = start + tl.arange(0, BLOCK)
        distance = tl.where(i < n, tl.load(x + plane * n + i, mask=i < n, other=0.0) - m, 0.0)
        squares += tl.sum(distance * distance)
    r = 1.0 / tl.sqrt(squares / (n - 1) + eps)
    tl.store(mean + plane, m)
    tl.store(rstd + plane, r)
    for start in range(0, n, BLOCK):
        i = start + tl.arange(0, BLOCK)
        h = (tl.load(x + plane * n + i, mask=i < n, other=0.0) - m) * r
        tl.store(y + plane * n + i, tl.maximum(h, 0.0), mask=i < n)
