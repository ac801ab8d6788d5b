"""Answers that are right in another way than the solution are accepted."""

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader

from labcourse import check
from labkit.networks import Skip, initialise


def depthwise_5_x_5(channels):
    return Skip(
        nn.ReflectionPad2d(2),
        nn.Conv2d(channels, channels, 5, groups=channels),
        nn.InstanceNorm2d(channels),
        nn.ReLU(),
        nn.Conv2d(channels, channels, 1),
    )


def mobilenet_v1(channels):
    def layers():
        depthwise = nn.Conv2d(channels, channels, 3, groups=channels)
        yield from (nn.ReflectionPad2d(1), depthwise, nn.InstanceNorm2d(channels), nn.ReLU())
        yield from (nn.Conv2d(channels, channels, 1), nn.InstanceNorm2d(channels))

    return Skip(*layers(), nn.ReLU(), *layers())


class WithoutBiases(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.first, self.second = (
            nn.Sequential(
                nn.ReflectionPad2d(1), nn.Conv2d(channels, channels, 3, bias=False), nn.InstanceNorm2d(channels)
            )
            for _ in range(2)
        )

    def forward(self, x):
        return x + self.second(torch.relu(self.first(x)))


def test_a_residual_block_needs_no_biases_before_instance_norm():
    check.residual_block(WithoutBiases)


class SecondFirst(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.second, self.first = (nn.Conv2d(channels, channels, 3) for _ in range(2))
        self.norm, self.pad = nn.InstanceNorm2d(channels), nn.ReflectionPad2d(1)

    def forward(self, x):
        return x + self.norm(self.second(self.pad(self.norm(self.first(self.pad(x))).relu())))


def test_layers_may_be_made_in_another_order_than_they_are_used_in():
    check.residual_block(SecondFirst)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("block", [depthwise_5_x_5, mobilenet_v1])
def test_a_light_block_may_close_many_activations(block, seed, monkeypatch):
    monkeypatch.setenv("LABKIT_CHECK_SEED", str(seed))
    check.hidden(check.light_block, block)


def test_a_statement_in_c_may_name_a_sum():
    pixel = "k + channels * (j + 4 * column + width * (i + 4 * row))"
    check.input_transform(
        pixel,
        """
        Lanes a = d[4] - 4 * d[2];  // both sums of rows 1 and 2
        Lanes b = d[3] - 4 * d[1];
        Lanes c = d[4] - d[2];
        Lanes e = 2 * (d[3] - d[1]);
        v[0] = 4 * d[0] - 5 * d[2] + d[4];
        v[1] = a + b; v[2] = a - b;
        v[3] = c + e; v[4] = c - e;
        v[5] = 4 * d[1] - 5 * d[3] + d[5];
        """,
    )


def test_a_discriminator_of_codes_may_leave_out_biases_before_a_norm():
    class Judge(nn.Module):
        def __init__(self, channels, width):
            super().__init__()
            rows = (channels, 4 * width, 2), (4 * width, 8 * width, 1)
            normed = [
                layer
                for into, out, stride in rows
                for layer in (nn.Conv2d(into, out, 4, stride, 1, bias=False), nn.InstanceNorm2d(out), nn.LeakyReLU(0.2))
            ]
            self.last, self.first = nn.Conv2d(8 * width, 1, 4, 1, 1), nn.Sequential(*normed)
            initialise(self)

        def forward(self, code: torch.Tensor) -> torch.Tensor:
            return self.last(self.first(code))

    check.code_discriminator(Judge)


def test_a_loop_may_have_a_data_loader():
    def repaired_loop(net, optimizer, files, read, epochs, device):
        pictures, losses = torch.stack([read(file) for file in files]), []
        for _ in range(epochs):
            for batch in DataLoader(pictures, batch_size=4):
                batch = batch.to(device).float() / 255
                loss = ((net(batch) - batch) ** 2).mean()
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                losses.append(loss.detach())
        return torch.stack(losses).double().tolist()

    check.repaired_loop(repaired_loop)
    check.hidden(check.repaired_loop, repaired_loop)
