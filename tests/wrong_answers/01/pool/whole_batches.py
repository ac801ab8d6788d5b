# expects: treated as one picture
class Pool:
    def __init__(self, size, seed=0):
        self.size, self.pictures, self.random = size, [], random.Random(seed)

    def __call__(self, pictures):
        if len(self.pictures) < self.size:
            self.pictures.append(pictures)
            return pictures
        if self.random.random() > 0.5:
            slot = self.random.randrange(self.size)
            old, self.pictures[slot] = self.pictures[slot], pictures
            return old
        return pictures
