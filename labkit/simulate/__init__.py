"""A GPU's timeline without a GPU: models of launches, queues and streams. All of its times are SIMULATED."""

from labkit.simulate.cost_model import ROOFLINES as ROOFLINES
from labkit.simulate.cost_model import network_costs as network_costs
from labkit.simulate.cost_model import parts_of as parts_of
from labkit.simulate.launch_queue import GAP_US as GAP_US
from labkit.simulate.launch_queue import Launch as Launch
from labkit.simulate.launch_queue import Timeline as Timeline
from labkit.simulate.launch_queue import play as play
from labkit.simulate.launch_queue import replay_graph as replay_graph
from labkit.simulate.operators import LiveBytes as LiveBytes
from labkit.simulate.operators import Operator as Operator
from labkit.simulate.operators import Recorder as Recorder
from labkit.simulate.operators import step_memory as step_memory
from labkit.simulate.operators import step_operators as step_operators
from labkit.simulate.replay import replay as replay
from labkit.simulate.trace_file import Replay as Replay
from labkit.simulate.trace_file import write_trace as write_trace
from labkit.simulate.what_if import read_launches as read_launches
from labkit.simulate.what_if import what_if as what_if
