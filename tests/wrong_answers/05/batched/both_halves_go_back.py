# expects: `back` is run on batches of [4]
class Batched:
    @staticmethod
    def unsuited(model):
        return "batch norm" if any(isinstance(layer, nn.BatchNorm2d) for layer in model.modules()) else None

    def cycle(self, go, back, real, other):
        if other is None:
            return super().cycle(go, back, real, other)
        both = go(torch.cat([real, other]))
        fake, same = both.chunk(2)
        return Cycle(fake, back(both).chunk(2)[0], same)

    def judge(self, discriminator, real, fake):
        on_real, on_fake = discriminator(torch.cat([real, fake])).chunk(2)
        return on_real, on_fake
