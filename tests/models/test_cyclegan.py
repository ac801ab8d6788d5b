"""CycleGAN's losses by name, what switches them off, and the batches it takes."""

import pytest
import torch

import labkit
from labkit.models.losses import cycle_loss


def test_losses_come_in_the_reference_s_names_and_order(tiny, batch):
    losses = labkit.make_step(tiny())(*batch())
    assert list(losses) == ["D_A", "G_A", "cycle_A", "idt_A", "D_B", "G_B", "cycle_B", "idt_B"]
    assert all(loss.dim() == 0 and not loss.requires_grad for loss in losses.values())


def test_a_cycle_loss_and_a_pool_of_one_s_own_take_part_in_the_step(tiny, batch):
    asked = []

    class Own:
        cycle_loss = staticmethod(lambda real, back, weight: 7 * cycle_loss(real, back, weight))

        def pooled(self, pool, fakes, batch):
            asked.append(pool)
            return batch["real_b" if pool == "fake_B" else "real_a"]

    model = tiny()
    plain, own = labkit.make_step(tiny())(*batch()), labkit.make_step(model, Own)(*batch())
    assert own["cycle_A"] == pytest.approx(7 * plain["cycle_A"].item()) and own["G_A"] == plain["G_A"]
    assert asked == ["fake_B", "fake_A"]
    assert own["D_A"] != plain["D_A"], "it judges real pictures in place of the fakes"


def test_pool_seeds_follow_torch_s_seed(tiny):
    draws = []
    for seed in (0, 0, 1):
        torch.manual_seed(seed)
        model = labkit.CycleGAN("resnet_3blocks", ngf=2, ndf=2)
        draws.append([pool.random.random() for pool in model.pools.values()])
    assert draws[0] == draws[1] != draws[2]
    assert draws[0][0] != draws[0][1]


BAD_BATCHES = [
    (lambda a, b: (a[0], b), r"real_a has shape \(3, 32, 32\)"),
    (lambda a, b: (a, b[:, :1]), "real_b has shape"),
    (lambda a, b: ((a * 127 + 128).to(torch.uint8), b), "labkit.to_float"),
    (lambda a, b: (a, b.double()), "torch.float64"),
    (lambda a, b: (a * 100, b), r"real_a runs from .* expect \[-1, 1\]"),
    (lambda a, b: (a, b / 0), "real_b runs from"),
    (lambda a, b: (a.repeat(2, 1, 1, 1), b), "as many pictures of each domain"),
    (lambda a, b: (a[..., :30], b), "multiples of 4"),
    (lambda a, b: (a[..., :8, :8], b), "at least 12"),
    (lambda a, b: (a.to("meta"), b), "real_a is torch.float32 on meta"),
]


@pytest.mark.parametrize(("change", "message"), BAD_BATCHES)
def test_batches_that_do_not_fit_are_refused(tiny, batch, change, message):
    step = labkit.make_step(tiny())
    with pytest.raises(labkit.LabkitError, match=message):
        step(*change(*batch()))
