"""`make feedback-zip`: the feedback as Moodle takes it back."""

import zipfile
from pathlib import Path

from tools.grading.collect import MOODLE_FOLDER
from tools.grading.course import Course


def pack(course: Course, notebook: str, path: Path) -> list[str]:
    """Pack the feedback for Moodle's "Upload multiple feedback files in a zip": in folders named as in its export.

    Returns:
        The students whose feedback is not in it: what counts is not from Moodle, or has no feedback.
    """
    missing = []
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for student in course.submitted(notebook):
            folder = course.root / "submitted" / student / notebook / MOODLE_FOLDER
            page = course.feedback(student, notebook)
            if folder.exists() and page.exists():
                archive.write(page, f"{folder.read_text(encoding='utf-8')}/{page.name}")
            else:
                missing.append(student)
    return missing
