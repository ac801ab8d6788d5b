"""A GPU's timeline without a GPU: models of launches, queues and streams. All of its times are SIMULATED."""

from labkit.simulate.cost_model import ROOFLINES, network_costs, parts_of
from labkit.simulate.launch_queue import GAP_US, Launch, Timeline, play, replay_graph
from labkit.simulate.operators import Operator, Recorder, step_memory, step_operators
from labkit.simulate.replay import replay
from labkit.simulate.trace_file import Replay, write_trace
from labkit.simulate.what_if import read_launches, what_if

__all__ = [
    "GAP_US",
    "ROOFLINES",
    "Launch",
    "Operator",
    "Recorder",
    "Replay",
    "Timeline",
    "network_costs",
    "parts_of",
    "play",
    "read_launches",
    "replay",
    "replay_graph",
    "step_memory",
    "step_operators",
    "what_if",
    "write_trace",
]
