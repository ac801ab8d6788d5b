# expects: use the argument `channels`
class ResidualBlock(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.body = nn.Sequential(
            nn.ReflectionPad2d(1),
            nn.Conv2d(64, 64, 3),
            nn.InstanceNorm2d(64),
            nn.ReLU(),
            nn.ReflectionPad2d(1),
            nn.Conv2d(64, 64, 3),
            nn.InstanceNorm2d(64),
        )

    def forward(self, x):
        return x + self.body(x)
