# expects: Some places are left out
def add(x, y, out, n, BLOCK: tl.constexpr):
    """Writes x + y to out, n numbers each."""
    i = tl.program_id(0) + tl.arange(0, BLOCK)
    total = tl.load(x + i, mask=i < n) + tl.load(y + i, mask=i < n)
    tl.store(out + i, total, mask=i < n)
