# expects: used twice counts once
def separable_block(channels):
    layers = [
        nn.ReflectionPad2d(1),
        nn.Conv2d(channels, channels, 3, groups=channels, bias=False),
        nn.Conv2d(channels, channels, 1),
        nn.InstanceNorm2d(channels),
    ]
    return Skip(*layers, nn.ReLU(True), *layers)
