# expects: this is labkit's own
from labkit.networks.codes import CodeDiscriminator
