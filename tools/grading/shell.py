"""Runs cells as Jupyter's kernel does, and sends their outputs away at once, so that a crash loses none of them."""

import base64
import json
import os
import sys

from IPython.core.displayhook import DisplayHook
from IPython.core.displaypub import DisplayPublisher
from IPython.core.interactiveshell import InteractiveShell

CUT = "\n... a part of the output was cut\n"
TAIL = 1000  # characters at the end of a cell's printed output, which are never cut: there a check says "right"

Cells = list[tuple[str, str]]  # key and source


class Sender:
    """Writes messages as lines of JSON, each after a secret that an answer, which has the same file, does not know."""

    def __init__(self, file: int, secret: str = ""):
        self.file, self.secret = file, secret

    def __call__(self, message: dict) -> None:
        line = (self.secret + json.dumps(message, default=str) + "\n").encode()
        while line:
            line = line[os.write(self.file, line) :]


class Outputs:
    """Where the outputs of a cell go. After `characters` of them all but the end is dropped, and the cell runs on."""

    def __init__(self, send: Sender, characters: int):
        self.send, self.left, self.cell, self.tail = send, characters, "", ""

    def __call__(self, output_type: str, size: int = 0, **fields: object) -> None:
        """Send an output, if there is room left for its size."""
        if size > self.left:
            self.tail = f"{self.tail or CUT}{fields.get('text', '')}"
            self.tail = CUT + self.tail.removeprefix(CUT)[-TAIL:]
            self.left = -1
            return
        self.left -= size
        self.send({"cell": self.cell, "output": {"output_type": output_type, **fields}})

    def end_cell(self) -> None:
        """Send the end of what was dropped, and that the cell has run to its end."""
        if self.tail:
            self.send({"cell": self.cell, "output": {"output_type": "stream", "name": "stdout", "text": self.tail}})
        self.tail = ""
        self.send({"cell": self.cell, "done": True})

    def data(self, output_type: str, data: dict, metadata: dict | None, **more: object) -> None:
        """Send what is displayed, of several types."""
        data = {kind: base64.b64encode(one).decode() if isinstance(one, bytes) else one for kind, one in data.items()}
        size = len(json.dumps(data, default=str))
        self(output_type, size, data=data, metadata=metadata or {}, **more)


class Stream:
    """sys.stdout and sys.stderr of a cell."""

    encoding, closed = "utf-8", False

    def __init__(self, outputs: Outputs, name: str):
        self.outputs, self.name = outputs, name

    def write(self, text: str) -> int:
        room = max(self.outputs.left, 0)
        for part in (text[:room], text[room:]):  # the second one does not fit
            if part:
                self.outputs("stream", len(part), name=self.name, text=part)
        return len(text)

    def writelines(self, lines: list[str]) -> None:
        for line in lines:
            self.write(line)

    def flush(self) -> None: ...

    def isatty(self) -> bool:
        return False


class Publisher(DisplayPublisher):
    """`display(...)`"""

    def publish(self, data: dict, metadata: dict | None = None, **_: object) -> None:
        self.shell.outputs.data("display_data", data, metadata)


class Result(DisplayHook):
    """The value of a cell's last line."""

    def write_output_prompt(self) -> None: ...

    def write_format_data(self, format_dict: dict, md_dict: dict | None = None) -> None:
        count = self.shell.execution_count
        self.shell.outputs.data("execute_result", format_dict, md_dict, execution_count=count)

    def finish_displayhook(self) -> None: ...


class Shell(InteractiveShell):
    """IPython as Jupyter's kernel has it, without the messages between kernel and notebook."""

    outputs: Outputs

    def _showtraceback(self, etype: type, evalue: BaseException, stb: list[str]) -> None:
        self.outputs("error", 0, ename=etype.__name__, evalue=str(evalue)[:10_000], traceback=stb)

    def run(self, cells: Cells, send: Sender, characters: int) -> bool:
        """Run cells, the later ones even if an earlier one fails; whether all ran without errors.

        The last one is a check, the course's own, so that no rule on answers holds for it.
        """
        self.outputs = Outputs(send, characters)
        sys.stdout, sys.stderr = Stream(self.outputs, "stdout"), Stream(self.outputs, "stderr")
        fine = True
        for place, (key, source) in enumerate(cells):
            self.outputs.cell = key
            if place == len(cells) - 1:
                self.ast_transformers = []
            fine &= self.run_cell(source, store_history=True).success
            self.outputs.end_cell()
        return fine
