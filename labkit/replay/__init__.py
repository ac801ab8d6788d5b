"""A GPU's timeline without a GPU: models of how launches, queues and streams behave. SIMULATED time only."""

from labkit.replay.costs import ROOFLINES
from labkit.replay.memory import step_memory
from labkit.replay.networks import network_costs
from labkit.replay.playing import replay
from labkit.replay.record import record_operators
from labkit.replay.recorded import replay_recorded
from labkit.replay.trace import write_trace

__all__ = ["ROOFLINES", "network_costs", "record_operators", "replay", "replay_recorded", "step_memory", "write_trace"]
