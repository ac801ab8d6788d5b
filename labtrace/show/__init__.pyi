from labtrace.show.bars import stamp_text as stamp_text
from labtrace.show.explorer import trace_explorer as trace_explorer
from labtrace.show.style import view as view
from labtrace.show.views import trace as trace
