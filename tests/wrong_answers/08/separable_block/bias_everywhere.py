# expects: the 1x1 have one and the 3x3 none
def separable_block(channels):
    def separable():
        return [
            nn.ReflectionPad2d(1),
            nn.Conv2d(channels, channels, 3, groups=channels),
            nn.Conv2d(channels, channels, 1),
            nn.InstanceNorm2d(channels),
        ]

    return Skip(*separable(), nn.ReLU(True), *separable())
