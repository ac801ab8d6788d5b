"""The model of a cluster: its formulas, NCCL's own numbers, and a step that is played with its collectives."""

from unittest import mock

import pytest

import labkit
from labkit.simulate import CLUSTERS, ROOFLINES, replay, scaling, shared_step
from labkit.simulate.clusters import INFINIBAND, NVLINK, Cluster, Link, all_reduce_us
from labkit.simulate.many_gpus import STREAM, with_collectives

ONE = Cluster(Link("one microsecond a message, one byte a microsecond", 1.0, 1e6), start_us=0.0, gpus_per_node=1024)


@pytest.fixture(scope="module")
def counted():
    """A small step, with two buckets for the generators; by its batch size."""
    model = labkit.CycleGAN(generator="resnet_3blocks", discriminator="n_layers", n_layers=2, ngf=24, ndf=4)
    return {batch: shared_step(model, batch_size=batch, size=64) for batch in (1, 2)}


@pytest.fixture(scope="module")
def step(counted):
    return counted[2]


def test_a_ring_and_a_tree_by_hand():
    assert all_reduce_us(1000, 1, ONE) == 0
    assert all_reduce_us(1000, 2, ONE) == 2 * (1 + 500)
    assert all_reduce_us(1000, 8, ONE) == 14 * (1 + 125), "a ring moves each byte 2 (g - 1) / g times"
    assert all_reduce_us(8, 8, ONE) == 6 + 16, "a tree has 2 log2(g) messages"
    assert all_reduce_us(8, 5, ONE) == 2 * 4 * (1 + 8 / 5), "here the ring is faster"


def test_nodes_by_hand():
    """Four GPUs of a node add up a quarter each, then each quarter goes over the network, all at once."""
    cluster = Cluster(Link("inside", 1.0, 1e6), Link("between", 10.0, 1e5), gpus_per_node=4, start_us=5.0)
    assert all_reduce_us(4000, 8, cluster) == 5 + 6 * (1 + 1000) + 2 * (10 + 2000 * 10)
    assert all_reduce_us(4000, 4, cluster) == 5 + 6 * (1 + 1000)


NCCL = [
    *((gpus, Cluster(NVLINK), 1.6) for gpus in (2, 4, 8)),
    *((gpus, Cluster(NVLINK, Link("one adapter", INFINIBAND.latency_us, 50e9)), 2.2) for gpus in (16, 64, 1024)),
]


@pytest.mark.parametrize("gpus, cluster, factor", NCCL)
def test_it_agrees_with_the_model_of_nccl(gpus, cluster, factor):
    """PyTorch's copy of NCCL's tuning tables, for H100; see the docstring of labkit/simulate/clusters.py."""
    nccl = pytest.importorskip("torch._inductor.comm_analysis")
    if not hasattr(nccl, "_nccl_algo_time"):
        pytest.skip("this version of PyTorch has an older model of NCCL, without its protocols")
    with mock.patch.object(nccl, "get_gpu_type", lambda: nccl.NVIDIA_GPU_TYPE.HOPPER):
        for size in (32, 2**10, 2**15, 2**18, 2**20, 2**22, 2**24, 25 * 2**20, 2**27):
            theirs = 1e3 * nccl.estimate_nccl_collective_runtime_impl(size, gpus, nccl.NCCL_COLL.ALL_REDUCE)
            ours = all_reduce_us(size, gpus, cluster)
            assert 1 / factor < ours / theirs < factor, size
            if gpus <= 8 and size == 2**27:
                assert ours == pytest.approx(theirs, rel=0.1)


@pytest.mark.slow
def test_a_bucket_that_is_sent_early_is_hidden_and_the_last_one_exposed(step):
    """One collective takes 100 us, and the others none."""
    played = replay(step.operators, 0.0, ROOFLINES["H100"], steps=1)
    alone = played.timeline.wall

    def wall(us):
        return with_collectives(played, step, lambda collective: us.get(collective, 0.0), 0.0).wall - alone

    first, last, discriminators, losses = step.collectives
    assert wall({first: 100.0}) == pytest.approx(0, abs=1e-6), "the rest of the backward pass takes longer"
    for exposed in (last, discriminators, losses):
        assert wall({exposed: 100.0}) == pytest.approx(100, abs=3), exposed
    assert wall({first: 1e6}) == pytest.approx(1e6, rel=0.01), "the optimizer waits, however long it takes"


def test_the_optimizer_starts_after_its_own_collectives(step):
    played = replay(step.operators, 1.0, steps=1)
    cluster = CLUSTERS["PCIe + Ethernet"]
    timeline = with_collectives(played, step, lambda collective: all_reduce_us(collective.bytes, 64, cluster), 1.0)
    sent = timeline.stream == STREAM
    players = [each.range.partition(" ")[0] for each in step.collectives]
    ends = dict(zip(players, timeline.kernel_end[sent], strict=True))
    starts = {}
    for source, start in zip(played.sources, timeline.kernel_start[~sent], strict=True):
        player, _, phase = source.range.partition(" ")
        if phase == "optimizer":
            starts.setdefault(player, start)
    assert len(starts) == 2 and all(start >= ends[player] for player, start in starts.items())
    order = timeline.kernel_start[sent]
    assert (order[1:] >= timeline.kernel_end[sent][:-1]).all(), "one after the other, as in one NCCL communicator"


def test_every_row_says_simulated_and_adds_up(step):
    table = scaling(step, gpus=(1, 8, 64), host_us=2.0)
    assert table["SIMULATED"].all() and table.attrs["stamp"]["SIMULATED"] is True
    assert table.attrs["stamp"]["device"] == "SIMULATED A100" and table.attrs["stamp"]["host_us"] == 2.0
    assert set(table["network"]) == set(CLUSTERS) and set(table["scaling"]) == {"weak"}
    one = table[table["gpus"] == 1]
    assert (one["efficiency"] == 1).all() and (one["exposed_us"] == 0).all() and (one["communication_us"] == 0).all()
    assert (table["step_us"] - table["exposed_us"]).to_numpy() == pytest.approx(one["step_us"].iloc[0])
    assert table["images_per_s"].to_numpy() == pytest.approx((table["gpus"] * 2e6 / table["step_us"]).to_numpy())
    assert (table["exposed_us"] <= table["communication_us"] + 10).all() and (table["memory"] == step.memory).all()
    by_network = table[table["gpus"] == 64].set_index("network")["efficiency"]
    assert by_network["NVLink + InfiniBand"] > by_network["NVLink + Ethernet"] > by_network["PCIe + Ethernet"]


def test_the_faster_the_step_the_worse_it_scales(step):
    """A quicker device and a quicker host shorten the computation, but not the communication."""
    at = dict(clusters={"Ethernet": CLUSTERS["NVLink + Ethernet"]}, gpus=(64,))
    hosts = (40.0, "T4"), (0.5, "T4"), (0.5, "H100")
    tables = [scaling(step, host_us=host_us, device=device, **at) for host_us, device in hosts]
    slow, quick_host, better_device = (table.iloc[0] for table in tables)
    assert slow["step_us"] > quick_host["step_us"] > better_device["step_us"]
    assert slow["efficiency"] > quick_host["efficiency"] > better_device["efficiency"]


def test_strong_scaling_divides_the_batch_until_nothing_is_left(counted):
    table = scaling(list(counted.values()), gpus=(1, 2, 4), clusters={"NVLink": Cluster(NVLINK)}, host_us=1.0)
    assert table["gpus"].tolist() == [1, 2] and table["batch"].tolist() == [2, 1]
    assert set(table["scaling"]) == {"strong"} and table["memory"].tolist() == [counted[2].memory, counted[1].memory]
    assert table["efficiency"].iloc[1] < 1
    assert table["images_per_s"].tolist() == pytest.approx((2e6 / table["step_us"]).tolist()), "the same whole batch"
