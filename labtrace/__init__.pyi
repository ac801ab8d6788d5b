from labtrace import planted as planted
from labtrace import replay as replay
from labtrace import show as show
from labtrace.errors import LabError as LabError
from labtrace.errors import TraceError as TraceError
from labtrace.trace import Trace as Trace

__version__: str
