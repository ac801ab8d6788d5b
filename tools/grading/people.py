"""The class list: a table of your own, Canvas's gradebook or Moodle's grading worksheet."""

import io
import re
import unicodedata
from pathlib import Path

import pandas as pd

CLASS_LIST = "class_list.csv"  # in the course's folder


def read_people(path: Path) -> pd.DataFrame:
    """The students of a course, all columns of the table and beside them id, first_name, last_name, number.

    Args:
        path: a CSV file with the column `id`, and first_name, last_name, email if it has them; or the gradebook that
            Canvas exports, or the grading worksheet of Moodle, set to English. `number` is what these call a student.

    Raises:
        ValueError: it is another table, or not in UTF-8.
    """
    try:
        text = path.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError as error:
        raise ValueError(f"{path} is not in UTF-8: in Excel, save it as `CSV UTF-8`") from error
    separator = max(",;\t", key=text.partition("\n")[0].count)  # Excel writes semicolons in much of Europe
    people = pd.read_csv(io.StringIO(text), sep=separator, dtype=str, keep_default_na=False, skipinitialspace=True)
    if {"ID", "Student"} <= {*people}:
        people = people[people["ID"] != ""].copy()  # the row of possible points has none
        login = people.get("SIS Login ID", people["ID"])
        people["id"], people["number"] = login.where(login != "", people["ID"]), people["ID"]
        people[["last_name", "first_name"]] = people["Student"].str.partition(", ")[[0, 2]]
    elif {"Identifier", "Full name"} <= {*people}:
        people["number"] = people["Identifier"].str.replace(r"\D", "", regex=True)
        people["first_name"] = people["Full name"]
        people["id"] = people.get("Email address", people["Full name"] + " " + people["number"])
    elif "id" not in people:
        raise ValueError(f"{path} has not the columns id, or ID and Student, or Identifier and Full name: {[*people]}")
    people["id"] = people["id"].map(identifier)
    return people[people["id"] != ""].drop_duplicates("id").set_index("id", drop=False)


def identifier(name: str) -> str:
    """A name as nbgrader can use it for a folder."""
    return re.sub(r"[^\w.@+-]+", "_", unicodedata.normalize("NFC", name)).strip("_.")
