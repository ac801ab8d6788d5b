# expects: a model with batch norm is let in
class Batched:
    @staticmethod
    def unsuited(model):
        return None

    def cycle(self, go, back, real, other):
        if other is None:
            return super().cycle(go, back, real, other)
        fake, same = go(torch.cat([real, other])).chunk(2)
        return Cycle(fake, back(fake), same)

    def judge(self, discriminator, real, fake):
        on_real, on_fake = discriminator(torch.cat([real, fake])).chunk(2)
        return on_real, on_fake
