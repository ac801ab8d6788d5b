# expects: make the streams in cycles
class TwoStreams:
    def __init__(self):
        self.sides = torch.cuda.Stream(), torch.cuda.Stream()
