# expects: nn.Sequential
class ResidualBlock(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.body = [
            nn.ReflectionPad2d(1),
            nn.Conv2d(channels, channels, 3),
            nn.InstanceNorm2d(channels),
            nn.ReLU(),
            nn.ReflectionPad2d(1),
            nn.Conv2d(channels, channels, 3),
            nn.InstanceNorm2d(channels),
        ]

    def forward(self, x):
        y = x
        for layer in self.body:
            y = layer(y)
        return x + y
