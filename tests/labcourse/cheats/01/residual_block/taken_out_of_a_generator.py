# expects: your answer calls the library's own labkit.networks.resnet.ResidualBlock
def ResidualBlock(channels):
    generator = networks.make_generator("resnet_3blocks", width=channels // 4)
    return next(layer for layer in generator.modules() if type(layer).__name__ == "ResidualBlock")
