"""What a recording shows of the program itself: what is there already, so that nobody is told to add it."""

from __future__ import annotations

from functools import cached_property

import pandas

from labtrace.errors import LabError
from labtrace.events.dialects import CALLS, matching
from labtrace.events.intervals import Union
from labtrace.events.rank import Rank
from labtrace.tables.achieved import PRODUCTS, TF32, achieved
from labtrace.tables.dependencies import launches_block

# Kernels in 16 bits or fewer, by PyTorch's names, Tensile's (Cijk_..._BBS) and cuBLAS's (nvjet_hsh, nvjet_tst).
# Flash attention has no others.
EIGHT = r"(?i)fp8|float8|f8f8|e4m3|e5m2|fp4|e2m1|int8|i8i8|s8s8|nvjet_(?:sm\d+_)?[qo]|Cijk_[a-z]+_[a-z]+_(?:f8|i8)"
SIXTEEN = rf"{EIGHT}|bf16|fp16|f16|half|bfloat|Cijk_[a-z]+_[a-z]+_[bh]|nvjet_(?:sm\d+_)?[ht]|flash|attn_[fb]wd|sage_fwd"
SIXTY_FOUR = r"(?i)(?<![a-z])dgemm|d884gemm|f64|fp64|double|Cijk_[a-z]+_[a-z]+_[dz]"
# With these layers channels_last alone copies more than it saves: they know the channels first only.
CHANNELS_FIRST = r"(?i)reflection_pad|instance_norm"
ON_GPU, PINNED = r"DtoD|D2D|DeviceToDevice", "Pinned"
# Products of weights that compute less for each byte wait for their weights on any GPU: in 16 bits, and in 32.
WEIGHTS, FEW_FLOPS = r"^aten::(?:add)?mm$", {"bfloat16": 50.0, "float16": 50.0, "float32": 15.0}
TRAINS, SAMPLES = r"(?i)backward|optimi[sz]er|adam|sgd|multi_tensor", r"(?i)argmax|multinomial|sampl|topk|decode"


class Program:
    """The program behind a recording.

    Args:
        rank: the recording.
        kernels: of it, with name and duration.
        kinds: what each of them does, as `labtrace.events.dialects.fine_kinds`.
    """

    def __init__(self, rank: Rank, kernels: pandas.DataFrame, kinds: pandas.Series) -> None:
        self.rank, self.kernels, self.kinds = rank, kernels, kinds
        self.before_ampere = rank.recording.before_ampere
        events = rank.recording.events
        on_host, gaps = events["name"], rank.gaps
        regions = events[matching(on_host, r"^Torch-Compiled Region")]
        waited = Union(regions["begin"], regions["end"]).covered(gaps["begin"], gaps["end"]).sum()
        self.is_compiled = len(regions) > 0
        self.breaks = self.is_compiled and bool(waited < gaps["us"].sum() / 2)  # it waits between compiled regions
        calls = rank.operators["name"][rank.operators["category"].isin(CALLS)]
        self.has_graphs = not matching(calls, r"^(?:ur|ze)[A-Z]").any()  # PyTorch has none for Intel's GPUs
        self.launches_block = launches_block(kernels)
        names = pandas.concat([on_host, kernels["name"]])
        self.decodes = matching(names, SAMPLES).any() and not matching(names, TRAINS).any()

    @cached_property
    def channels_first(self) -> bool:
        """Whether it has layers for which channels_last copies more than it saves."""
        ranks = filter(None, (self.rank, self.rank.recording.twin))  # a twin has the operators of graphs
        names = pandas.concat([*(rank.operators["name"] for rank in ranks), self.kernels["name"]])
        return bool(matching(names, CHANNELS_FIRST).any())

    def mostly(self, kind: str, pattern: str) -> bool:
        """Whether kernels whose names fit took over half of the time of this kind."""
        ours = self.kernels[self.kinds == kind]
        return bool(ours["duration"][matching(ours["name"], pattern)].sum() > ours["duration"].sum() / 2)

    def fewer_bits(self, kind: str) -> list[str]:
        """The shorter numbers that most kernels of this kind do not compute in yet."""
        if self.mostly(kind, SIXTEEN):
            return []
        return ["16 bits"] if self.mostly(kind, TF32) or self.before_ampere else ["16 bits", "TF32"]

    @cached_property
    def reads_weights(self) -> bool:
        """Whether most of the products compute little for each byte, as far as the recording has their shapes."""
        try:
            table = achieved(self.rank)
        except LabError:
            return False
        ours = table[matching(table["name"], WEIGHTS)]
        few = ours["flops"] < ours["dtype"].map(FEW_FLOPS) * ours["bytes"]
        return bool(ours["us"][few].sum() > table["us"][table["name"].isin(PRODUCTS)].sum() / 2)
