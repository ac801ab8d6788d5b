# expects: raises AssertionError()
class Captured:
    def __init__(self, body, example):
        self.static = example.clone()
        with Tape() as self.tape:
            self.result = body(self.static)

    def __call__(self, a):
        assert a.shape == self.static.shape
        self.static.copy_(a)
        self.tape.replay()
        return self.result.clone()
