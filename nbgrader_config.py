"""How nbgrader makes and grades this course. `nbgrader` reads this file when it is started in this folder."""

from pathlib import Path

# Made by `make assignments`: source, release, submitted, autograded, gradebook.db
c.CourseDirectory.root = str(Path(__file__).parent / "assignments")

# What a student finds in place of ### BEGIN SOLUTION ... ### END SOLUTION
c.ClearSolutions.code_stub = {"python": "# TODO: your code here\nraise NotImplementedError"}

# Seconds a cell may run when a submission is graded: the longest one trains for about 100
c.Execute.timeout = 300
