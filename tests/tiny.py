"""The smallest networks that a test trains."""

TINY = dict(generator="resnet_3blocks", discriminator="n_layers", n_layers=2, ngf=4, ndf=4)
