"""One generator of three small convolutions that learns to deceive a discriminator as small, for two steps."""

from torch import Tensor, nn
from torch.nn import functional as F

from labcourse.speedrun import Entry
from labkit.models.model import Model
from labkit.models.step import Batch, Step
from labkit.networks.layers import Discriminator, Generator


class Colours(Generator):
    size_multiple, min_size = 1, 1

    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Conv2d(3, 8, 3, 1, 1), nn.ReLU(), nn.Conv2d(8, 3, 3, 1, 1))

    def forward(self, picture: Tensor) -> Tensor:
        return picture + self.layers(picture)


class Verdict(Discriminator):
    min_size = 4

    def __init__(self):
        super().__init__()
        self.layers = nn.Conv2d(3, 1, 4, 4)

    def forward(self, picture: Tensor) -> Tensor:
        return self.layers(picture)


class Players(Step):
    def generator(self, batch: Batch) -> dict[str, Tensor]:
        fake = self.model.G(batch["real_a"])
        batch["fake"] = fake.detach()
        verdict = self.model.D(fake)
        return {"G": F.mse_loss(verdict, verdict.new_ones(())), "dev": F.l1_loss(fake, batch["real_a"])}

    def discriminator(self, batch: Batch) -> dict[str, Tensor]:
        real, fake = self.model.D(batch["real_b"]), self.model.D(batch["fake"])
        return {"D": F.mse_loss(real, real.new_ones(())) + F.mse_loss(fake, fake.new_zeros(()))}


class Small(Model):
    kind, step_class, loss_names = "Small", Players, ("G", "dev", "D")
    settings, pools, parts, size_multiple, min_size = {}, {}, "two small networks", 1, 4

    def __init__(self):
        super().__init__()
        self.G, self.D = Colours(), Verdict()

    def players(self):
        return {"generator": list(self.G.parameters()), "discriminator": list(self.D.parameters())}

    def learning_rates(self):
        return {"generator": 1e-3, "discriminator": 1e-3}

    def translator(self, direction="AtoB"):
        return self.G


def entry(device):
    model = Small().to(device)
    return Entry(model, Players(model), steps=2, pictures=2)
