# expects: every picture comes straight back
class Pool:
    def __init__(self, size, seed=0):
        self.size, self.pictures, self.random = size, [], random.Random(seed)

    def __call__(self, pictures):
        self.pictures = [*self.pictures, *pictures][-self.size :]
        return pictures
