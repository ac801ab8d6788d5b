# expects: your answer calls the library's own labkit.networks.resnet.ResidualBlock
class ResidualBlock(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.block = networks.ResidualBlock(channels)

    def forward(self, x):
        return self.block(x)
