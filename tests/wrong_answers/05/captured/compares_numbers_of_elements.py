# expects: shape (3, 2)
class Captured:
    def __init__(self, body, example):
        self.static = example.clone()
        with Tape() as self.tape:
            self.result = body(self.static)

    def __call__(self, a):
        if a.numel() != self.static.numel():
            raise ValueError(f"recorded for {self.static.numel()} numbers, this has {a.numel()}")
        self.static.view(-1).copy_(a.reshape(-1))
        self.tape.replay()
        return self.result.clone()
