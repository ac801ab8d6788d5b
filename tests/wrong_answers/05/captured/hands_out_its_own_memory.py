# expects: Return a clone
class Captured:
    def __init__(self, body, example):
        self.static = example.clone()
        with Tape() as self.tape:
            self.result = body(self.static)

    def __call__(self, a):
        if a.shape != self.static.shape:
            raise ValueError("another shape")
        self.static.copy_(a)
        self.tape.replay()
        return self.result
