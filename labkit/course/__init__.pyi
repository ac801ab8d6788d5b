from labkit.course.summaries import learning_summary as learning_summary
from labkit.course.summaries import ratio_table as ratio_table
from labkit.course.summaries import survey_milliseconds as survey_milliseconds
from labkit.course.summaries import work_by_player as work_by_player
