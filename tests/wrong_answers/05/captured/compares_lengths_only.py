# expects: shape (2, 1)
class Captured:
    def __init__(self, body, example):
        self.static = example.clone()
        with Tape() as self.tape:
            self.result = body(self.static)

    def __call__(self, a):
        if len(a) != len(self.static):
            raise ValueError(f"recorded for {len(self.static)} rows, this has {len(a)}")
        self.static.copy_(a)
        self.tape.replay()
        return self.result.clone()
