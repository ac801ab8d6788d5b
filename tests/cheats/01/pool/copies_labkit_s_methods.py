# expects: this is labkit's own labkit.pool.Pool
from labkit import pool


class Pool:
    __init__, __call__ = pool.Pool.__init__, pool.Pool.__call__
    draw, exchange = pool.Pool.draw, pool.Pool.exchange
