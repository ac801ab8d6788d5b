"""Which stream every recorded operator is on, and whom it waits for."""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict

import torch
from torch import Tensor

NO_FORWARD = 2**63  # nodes of autograd that belong to no forward operator have numbers above


class Schedule:
    """Streams of operators, and the waits between streams.

    Streams are numbers, 0 the main one; operators are positions in the order of their calls. Source: PyTorch's notes,
    "CUDA semantics", section "Stream semantics of backward passes".
    """

    def __init__(self) -> None:
        self.current = 0
        self._streams: list[int] = []  # of each operator
        self._switches = [(0, 0)]  # from which of autograd's numbers on forward operators were on which stream
        self._newest: dict[int, int] = {}  # of each stream, its newest operator
        self._waits: dict[int, set[int]] = defaultdict(set)  # of each stream, what its next operator waits for
        # By address, who wrote a memory last. The memory is kept, so that its address is not given to another.
        self._writers: dict[int, tuple[torch.UntypedStorage, int]] = {}
        self._was_backward = False

    def switch(self, stream: int) -> None:
        """Makes `stream` the current one."""
        self.current = stream
        self._switches.append((torch._C._autograd._get_sequence_nr(), stream))

    def newest(self, stream: int) -> int | None:
        """The operator that `stream` was given last, None if there is none yet."""
        return self._newest.get(stream)

    def wait(self, waiting: int, operator: int | None) -> None:
        """Lets the stream `waiting` wait for `operator`, and so for all before it on its stream."""
        if operator is not None:
            self._waits[waiting].add(operator)

    def add(self, reads: list[Tensor], writes: list[Tensor]) -> tuple[int, tuple[int, ...]]:
        """The stream of the next operator, and the operators it waits for, at most one of every other stream.

        As in PyTorch, a backward operator is on the stream of its forward one and waits for those that wrote what it
        reads, and after the backward pass the current stream waits for all. A sum of gradients, which has no forward
        operator, is here on the stream of the last of them.
        """
        writers = [self._writers[address][1] for address in map(_address, reads) if address in self._writers]
        is_backward = torch._C._current_graph_task_id() != -1
        stream = self._stream_in_backward(writers) if is_backward else self.current
        if is_backward:
            self._waits[stream].update(writers)
        elif self._was_backward:
            self._waits[stream].update(self._newest.values())
        self._was_backward = is_backward
        after = {self._streams[position]: position for position in sorted(self._waits.pop(stream, ()))}
        after.pop(stream, None)
        self._newest[stream] = len(self._streams)
        for tensor in writes:
            self._writers[_address(tensor)] = tensor.untyped_storage(), self._newest[stream]
        self._streams.append(stream)
        return stream, tuple(after.values())

    def _stream_in_backward(self, writers: list[int]) -> int:
        node = torch._C._current_autograd_node()
        number = NO_FORWARD if node is None else node._sequence_nr()
        if number < NO_FORWARD:
            return self._switches[bisect_right(self._switches, number, key=lambda switch: switch[0]) - 1][1]
        return self._streams[max(writers)] if writers else self.current


def _address(tensor: Tensor) -> int:
    """Of the memory that a tensor shares with its views. It has no data on the meta device, but is an object."""
    return tensor.untyped_storage()._cdata
