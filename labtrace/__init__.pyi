from labtrace import replay as replay
from labtrace import show as show
from labtrace.errors import LabkitError as LabkitError
from labtrace.events.reading import TraceError as TraceError
from labtrace.trace import Trace as Trace

__version__: str
