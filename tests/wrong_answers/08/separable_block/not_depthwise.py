# expects: It must see one channel only
def separable_block(channels):
    def separable():
        return [
            nn.ReflectionPad2d(1),
            nn.Conv2d(channels, channels, 3, bias=False),
            nn.Conv2d(channels, channels, 1),
            nn.InstanceNorm2d(channels),
        ]

    return Skip(*separable(), nn.ReLU(True), *separable())
