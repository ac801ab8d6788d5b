"""`make grade`: from the files of a class to marks, feedback, a table and a report, on nbgrader.

nbgrader's own commands do the same, since `nbgrader_config.py` names the parts of this package: `collect` for its
`zip_collect`, `execute` for `autograde`, `course` for `generate_feedback`. `report` sums up.
"""
