"""`make grade`: from a folder of submissions to marks, feedback, a table and a report on the class, on nbgrader.

`collect` finds the notebooks, nbgrader grades them, and `report` sums up. nbgrader's own commands can do the same,
since `nbgrader_config.py` names the preprocessors of this package: `execute` runs the exercises in a `sandbox`, where
`worker` is the program, and `feedback` prepares what students see.
"""
