# expects: only the first of the three halves the code once more
class CodeDiscriminator(nn.Module):
    def __init__(self, channels, width):
        super().__init__()
        self.model = nn.Sequential(
            nn.Conv2d(channels, 4 * width, 4, 2, 1),
            nn.InstanceNorm2d(4 * width),
            nn.LeakyReLU(0.2),
            nn.Conv2d(4 * width, 8 * width, 4, 2, 1),
            nn.InstanceNorm2d(8 * width),
            nn.LeakyReLU(0.2),
            nn.Conv2d(8 * width, 1, 4, 1, 1),
        )
        initialise(self)

    def forward(self, code):
        return self.model(code)
