# expects: return the reason, or None
class Batched:
    @staticmethod
    def unsuited(model):
        if any(isinstance(layer, nn.BatchNorm2d) for layer in model.modules()):
            raise ValueError("batch norm")

    def cycle(self, go, back, real, other):
        if other is None:
            return super().cycle(go, back, real, other)
        fake, same = go(torch.cat([real, other])).chunk(2)
        return Cycle(fake, back(fake), same)

    def judge(self, discriminator, real, fake):
        return discriminator(torch.cat([real, fake])).chunk(2)
