# expects: your answer calls the library's own labkit.networks.resnet.Skip
from labkit.networks.resnet import Skip


def ResidualBlock(channels):
    def half():
        return nn.ReflectionPad2d(1), nn.Conv2d(channels, channels, 3), nn.InstanceNorm2d(channels)

    return Skip(*half(), nn.ReLU(), *half())
