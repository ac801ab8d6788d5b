# expects: there are 5 convolutions
class CodeDiscriminator(nn.Module):
    def __init__(self, channels, width):
        super().__init__()
        self.model = nn.Sequential(
            nn.Conv2d(channels, width, 4, 2, 1),
            nn.LeakyReLU(0.2),
            nn.Conv2d(width, 2 * width, 4, 2, 1),
            nn.InstanceNorm2d(2 * width),
            nn.LeakyReLU(0.2),
            nn.Conv2d(2 * width, 4 * width, 4, 2, 1),
            nn.InstanceNorm2d(4 * width),
            nn.LeakyReLU(0.2),
            nn.Conv2d(4 * width, 8 * width, 4, 1, 1),
            nn.InstanceNorm2d(8 * width),
            nn.LeakyReLU(0.2),
            nn.Conv2d(8 * width, 1, 4, 1, 1),
        )
        initialise(self)

    def forward(self, code):
        return self.model(code)
