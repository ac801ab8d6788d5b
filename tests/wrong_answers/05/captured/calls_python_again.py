# expects: the body has run
class Captured:
    def __init__(self, body, example):
        self.body = body
        self.shape = example.shape

    def __call__(self, a):
        if a.shape != self.shape:
            raise ValueError("another shape")
        with Tape():
            return self.body(a)
