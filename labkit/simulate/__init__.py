"""A GPU's timeline without a GPU: models of how launches, queues and streams behave. SIMULATED time only."""

from labkit.simulate.cost_model import ROOFLINES
from labkit.simulate.memory import step_memory
from labkit.simulate.networks import network_costs
from labkit.simulate.operators import record_operators
from labkit.simulate.replay import replay
from labkit.simulate.trace_file import write_trace
from labkit.simulate.what_if import replay_recorded

__all__ = ["ROOFLINES", "network_costs", "record_operators", "replay", "replay_recorded", "step_memory", "write_trace"]
