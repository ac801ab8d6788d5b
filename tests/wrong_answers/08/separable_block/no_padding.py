# expects: Pad by 1 before each 3x3
def separable_block(channels):
    def separable():
        return [
            nn.Conv2d(channels, channels, 3, groups=channels, bias=False),
            nn.Conv2d(channels, channels, 1),
            nn.InstanceNorm2d(channels),
        ]

    return Skip(*separable(), nn.ReLU(True), *separable())
