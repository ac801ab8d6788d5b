from labtrace.replay.launch_queue import Launch as Launch
from labtrace.replay.launch_queue import play as play
from labtrace.replay.recorded_replay import read_launches as read_launches
