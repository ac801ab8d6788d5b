# expects: So no channel hears of the others
def separable_block(channels):
    def separable():
        return [
            nn.ReflectionPad2d(1),
            nn.Conv2d(channels, channels, 3, groups=channels, bias=False),
            nn.Conv2d(channels, channels, 1, groups=channels),
            nn.InstanceNorm2d(channels),
        ]

    return Skip(*separable(), nn.ReLU(True), *separable())
