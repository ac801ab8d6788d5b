# expects: your answer calls the library's own labkit.models.pool.Pool
from labkit.models.pool import Pool


class FakePool(Pool):
    def __init__(self, size):
        self.size, self.filled, self.random, self.buffer = size, 0, random.Random(), None
