# expects: draws differently
class Pool:
    def __init__(self, size, seed=0):
        self.size, self.pictures, self.random = size, [], random.Random(seed)

    def __call__(self, pictures):
        answer = []
        for picture in pictures:
            if len(self.pictures) < self.size:
                self.pictures.append(picture)
                answer.append(picture)
            elif random.random() > 0.5:
                slot = random.randrange(self.size)
                answer.append(self.pictures[slot])
                self.pictures[slot] = picture
            else:
                answer.append(picture)
        return torch.stack(answer)
