# expects: this is labkit's own labkit.models.pool.Pool
from labkit.models import pool


class Pool:
    __init__, __call__ = pool.Pool.__init__, pool.Pool.__call__
    draw, exchange = pool.Pool.draw, pool.Pool.exchange
