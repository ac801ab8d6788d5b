# expects: the library's own labkit.networks.resnet.ResidualBlock
class ResidualBlock(networks.ResidualBlock):
    pass
