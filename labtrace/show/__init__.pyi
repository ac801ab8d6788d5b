from labtrace.show.bars import stamp_text as stamp_text
from labtrace.show.explorer import trace_explorer as trace_explorer
from labtrace.show.report import report_data as report_data
from labtrace.show.report import report_text as report_text
from labtrace.show.report import trace_report as trace_report
from labtrace.show.style import view as view
from labtrace.show.views import trace as trace
