# expects: the 1x1 comes first
def separable_block(channels):
    def separable():
        return [
            nn.Conv2d(channels, channels, 1),
            nn.ReflectionPad2d(1),
            nn.Conv2d(channels, channels, 3, groups=channels, bias=False),
            nn.InstanceNorm2d(channels),
        ]

    return Skip(*separable(), nn.ReLU(True), *separable())
