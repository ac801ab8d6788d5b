# expects: labkit's own labkit.models.pool.Pool
from labkit.models import pool


class Pool:
    def __init__(self, size, seed=0):
        self.pool = pool.Pool(size, seed)

    def __call__(self, pictures):
        return self.pool(pictures)
