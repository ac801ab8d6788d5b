"""The time of an all-reduce: latency and bandwidth of the links, and an algorithm. All of its times are SIMULATED.

A message of n bytes takes latency + n / bandwidth on a link. An all-reduce of n bytes among g ranks takes

- as a ring, 2 (g - 1) messages of n / g bytes one after the other: the most bandwidth, and a latency that grows with g,
- as a tree, 2 log2(g) messages in which the n bytes follow one another up to the root and down again: little latency.

We take the faster one, as NCCL does. With several machines (nodes) the GPUs of each node first add up a part each,
then each part is summed over the nodes, and in the end the GPUs of a node exchange their parts.

Sources:

- Thakur, Rabenseifner and Gropp 2005, "Optimization of Collective Communication Operations in MPICH", section 4
- Sanders, Speck and Träff 2009, "Two-tree algorithms for full bandwidth broadcast, reduction and scan"
- NCCL's tuning constants, src/graph/tuning.cc and src/graph/topo.h
- NVIDIA's data sheets of H100 and ConnectX-7

`torch._inductor.comm_analysis` has NCCL's own model, and tests/simulate/test_clusters.py compares the two. Within
a node they agree within a factor of 1.6 for every size, and within a tenth for large messages. Among nodes PyTorch's
lets all GPUs of a node share the bandwidth of one network adapter, and ours gives every GPU an adapter of its own, as
in NVIDIA's DGX. With one adapter a node they agree within a factor of 2.2.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from labkit.errors import LabkitError

START_US = 6.6  # until the first message of a collective leaves: NCCL's baseLat for rings, src/graph/tuning.cc


@dataclass(frozen=True)
class Link:
    """How ranks reach one another.

    Attributes:
        name: of the hardware.
        latency_us: of one message, in microseconds.
        bytes_per_s: of large messages in one direction, for each rank or, between nodes, for the whole node.
    """

    name: str
    latency_us: float
    bytes_per_s: float


@dataclass(frozen=True)
class Cluster:
    """Nodes with several GPUs each, and the links inside and between them.

    Attributes:
        inside: between the GPUs of a node.
        between: between nodes, or None if there is only one.
        gpus_per_node: how many GPUs a node has.
        start_us: microseconds that every collective takes before its first message.
    """

    inside: Link
    between: Link | None = None
    gpus_per_node: int = 8
    start_us: float = START_US


# NVLink 4: NCCL counts 18 links of 20.6 GB/s each (topo.h, SM90_NVLINK_BW), 82% of the data sheet's 450 GB/s. Its
# latency is that of NCCL's middle protocol, LL128. InfiniBand: 8 adapters of 400 Gbit/s in a node, and NCCL's latency
# of a tree between nodes, again LL128. PCIe: NCCL's latency, and a typical bandwidth. Ethernet: one adapter of
# 100 Gbit/s in a node, and a typical latency.
NVLINK = Link("NVLink 4", 1.9, 370e9)
PCIE = Link("PCIe 4", 2.5, 20e9)
INFINIBAND = Link("InfiniBand NDR, 8 adapters a node", 8.5, 8 * 50e9)
ETHERNET = Link("Ethernet, 100 Gbit/s a node", 30.0, 12.5e9)

CLUSTERS: Mapping[str, Cluster] = {
    "NVLink + InfiniBand": Cluster(NVLINK, INFINIBAND),
    "NVLink + Ethernet": Cluster(NVLINK, ETHERNET),
    "PCIe + Ethernet": Cluster(PCIE, ETHERNET),
}


def all_reduce_us(size: float, gpus: int, cluster: Cluster) -> float:
    """Microseconds of an all-reduce of `size` bytes among `gpus` GPUs: SIMULATED. 0 for a single one.

    Raises:
        LabkitError: `gpus` is not a whole number of nodes, or the cluster has only one node.
    """
    if gpus <= 1:
        return 0.0
    inside = min(gpus, cluster.gpus_per_node)
    nodes = gpus // inside
    if gpus % inside or (nodes > 1 and cluster.between is None):
        where = f"nodes of {cluster.gpus_per_node} GPUs" if cluster.between else f"one node of {inside} GPUs"
        raise LabkitError(f"gpus={gpus}: the cluster has {where}. Give at most one node, or a multiple of a node.")
    if nodes == 1 or cluster.between is None:
        return cluster.start_us + fastest_us(size, gpus, cluster.inside)
    # In a node the parts are added up at first, and exchanged in the end: the two halves of a ring's all-reduce.
    parts = ring_us(size, inside, cluster.inside.latency_us, cluster.inside.bytes_per_s)
    return cluster.start_us + parts + fastest_us(size, nodes, cluster.between)


def fastest_us(size: float, ranks: int, link: Link) -> float:
    """Microseconds of an all-reduce of `size` bytes, as a ring or as a tree, whichever is faster."""
    ring = ring_us(size, ranks, link.latency_us, link.bytes_per_s)
    tree = 2 * math.ceil(math.log2(ranks)) * link.latency_us + 2 * 1e6 * size / link.bytes_per_s
    return min(ring, tree)


def ring_us(size: float, ranks: int, latency_us: float, bytes_per_s: float) -> float:
    """Microseconds of an all-reduce of `size` bytes in a ring.

    In each of ranks - 1 rounds every rank sends one of `ranks` parts to its neighbour, which adds its own. In as many
    further rounds the sums are passed on. Source: Thakur et al. 2005, section 4.
    """
    return 2 * (ranks - 1) * (latency_us + 1e6 * size / ranks / bytes_per_s)
