# expects: Only the first block is done
def add(x, y, out, n, BLOCK: tl.constexpr):
    """Writes x + y to out, n numbers each."""
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    total = tl.load(x + i, mask=i < BLOCK) + tl.load(y + i, mask=i < BLOCK)
    tl.store(out + i, total, mask=i < BLOCK)
