"""`make grade`: from a folder of submissions to marks, feedback, a table and a report on the class, on nbgrader.

`collect` finds the notebooks, nbgrader grades them, `table` and `report` sum up, and `moodle` packs the feedback.
nbgrader's own commands can do the same, since `nbgrader_config.py` names the preprocessors that stand here: `execute`
runs the exercises in a `sandbox`, where `worker` is the program, and `pictures` draws the figures of the feedback.
"""
