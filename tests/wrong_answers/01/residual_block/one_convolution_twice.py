# expects: two layers
class ResidualBlock(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.pad = nn.ReflectionPad2d(1)
        self.convolve = nn.Conv2d(channels, channels, 3)
        self.norm = nn.InstanceNorm2d(channels)

    def forward(self, x):
        y = torch.relu(self.norm(self.convolve(self.pad(x))))
        return x + self.norm(self.convolve(self.pad(y)))
