"""Who handed in a file: what platforms call files, and the class list. nbgrader's `zip_collect` does the rest."""

import re
import shutil
import unicodedata
from pathlib import Path

import pandas as pd
from nbgrader.apps import ZipCollectApp
from nbgrader.plugins import FileNameCollectorPlugin

# The end of a path in what a platform exports. The first that fits counts; `number` is the platform's own for a student.
PLATFORMS = {
    "Canvas": r"(?P<name>[^\W_A-Z]+)(?P<late>_LATE)?_(?P<number>\d+)_\d+_(?P<file>[^/]+)",
    "Canvas, anonymous": r"(?P<late>LATE_)?(?P<name>anon_[^_/]+)_\d+_(?P<file>[^/]+)",
    "Moodle": r"(?P<name>[^_/]+)_(?P<number>\d+)_assignsubmission_[a-z]+[_/]+(?P<file>[^/]+)",
    "Blackboard": r"[^/]+_(?P<name>[^_/]+)_attempt_(?P<timestamp>[\d-]+)_(?P<file>[^/]+)",
    "Brightspace": r"(?P<number>\d+)-\d+ - (?P<name>[^/]+?) - \w+ \d+, \d+ \d+ [AP]M( - |/)(?P<file>[^/]+)",
    "folders": r"(?P<name>[^/]+)/(?:\d\db?_\w+/)?(?P<file>[^/]+)",  # nbgrader's own, too: STUDENT/NOTEBOOK/NOTEBOOK.ipynb
}
LATE = "late.txt"  # beside a notebook whose file Canvas calls late
WHOSE = "it does not say whose it is: put it into a folder with the student's id"
SEVERAL = "another file of this student counts"


class Platforms(FileNameCollectorPlugin):
    """Tells whose a file is, and which notebook. `left` has the other files with the reason, `late` the late students."""

    def __init__(self, **settings):
        super().__init__(**settings)
        self.people, self.left, self.late, self.found = pd.DataFrame(), {}, set(), set()

    def collect(self, submitted_file: str) -> dict[str, str] | None:
        """The student and the notebook of a file; None for one that is not collected."""
        path, notebook = Path(submitted_file).as_posix(), self.parent.coursedir.assignment_id
        matches = (re.search(f"(?:^|/){form}$", path) for form in PLATFORMS.values())
        said = next((match.groupdict() for match in matches if match), {})
        file = said.get("file", "").removesuffix(".txt")  # browsers add it to .ipynb
        other = re.match(r"\d\db?_[a-z_]*[a-z]", file)
        if file == "timestamp.txt" or other and other[0] != notebook:
            return None
        student = who(said["name"], said.get("number"), self.people) if said else ""
        timestamp = said.get("timestamp")
        if not student or (student in self.found and not timestamp):
            self.left[Path(path).name] = SEVERAL if student else WHOSE
            return None
        self.found.add(student)
        self.late |= {student} if said.get("late") else set()
        return {"student_id": student, "file_id": notebook} | ({"timestamp": timestamp} if timestamp else {})
