# expects: Only the first block is done
def add(x, y, out, n, BLOCK: tl.constexpr):
    """Writes x + y to out, n numbers each."""
    i = tl.arange(0, BLOCK)
    total = tl.load(x + i, mask=i < n) + tl.load(y + i, mask=i < n)
    tl.store(out + i, total, mask=i < n)
