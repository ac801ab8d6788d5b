"""Whether an answer is the student's own work, and whether its check is unchanged.

Four looks keep marks honest. `tampering` reads an answer's source before it runs: an answer is a few lines of Python
about tensors and numbers, so it may import the packages in `ALLOWED_PACKAGES` only, use none of the names in
`BANNED_NAMES`, and change attributes of its own objects only. While answers are graded, `notice` hears what an answer
does when it runs, and `changed` compares the functions that checks work with before and after it. `calls_of` and
`not_own` know labkit's own answer to an exercise.

They are as good as their lists: Python lets a program change everything in its process, the checks included.
This is no sandbox either: `make grade` keeps files and the network out of reach.
"""

from __future__ import annotations

import ast
import builtins
import hashlib
import importlib
import re
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import CodeType, FrameType, FunctionType, ModuleType
from typing import Any

import torch

from labcourse.check.cells import local_names, needed, plain

ALLOWED_PACKAGES = frozenset(
    "__future__ abc bisect cmath collections contextlib copy dataclasses decimal enum fractions functools heapq "
    "itertools json labcourse labkit labtrace math numbers numpy operator pandas plotly random re statistics string "
    "time torch typing warnings".split()
)
BANNED_NAMES = frozenset(
    # of Python: they run text as code, reach every object, or end the process
    "exec eval compile globals locals vars setattr delattr open exit quit breakpoint SystemExit "
    "sys os builtins importlib inspect gc ctypes threading _thread subprocess multiprocessing shutil tempfile atexit "
    "mock ThreadPoolExecutor Path pathlib "
    # of Jupyter
    "get_ipython IPython In Out "
    # of PyTorch: they change operations for everyone
    "TorchFunctionMode TorchDispatchMode cpp_extension _C "
    "register_module_forward_hook register_module_forward_pre_hook".split()
)
# Not to be read from an object, or imported.
BANNED_MEMBERS = BANNED_NAMES - {"eval"} | {"library", "overrides", "outcome"}
ALLOWED_SPECIAL = frozenset(
    "__init__ __post_init__ __call__ __len__ __iter__ __next__ __getitem__ __setitem__ __contains__ __enter__ __exit__ "
    "__repr__ __str__ __add__ __sub__ __mul__ __name__ __main__ __class__ __slots__ __version__ __all__".split()
)
NAMEDTUPLE_MEMBERS = frozenset("_asdict _fields _make _replace".split())
REFUSAL = "{} is not allowed in an answer, nor needed here: leave it out. An answer with it gets no points."
# The course's own lines in which `tampering` would find something. tools/notebooks.py writes them.
COURSE_LINES = frozenset(Path(__file__).with_name("course_lines.txt").read_text(encoding="utf-8").split())
TOOLS = {"builtins", "math", "random", "statistics", "numpy", "pandas", "torch", "torch.nn", "torch.nn.functional"}
IPYTHON_BUILTINS = {"exit", "quit", "get_ipython", "display"}  # in builtins while a cell runs
CHECKS = "labcourse.check."
OWN_PACKAGES = ("labcourse.", "labkit.", "labtrace.")


def tampering(source: str | ast.AST) -> str | None:
    """The first reason not to run an answer, in words that name the line, or None if there is none.

    Lines of the course's own that a student left as they are, or copied, are no reason. Nor is source that is no
    Python: Python will say what is wrong with it.
    """
    try:
        cell = ast.parse(source) if isinstance(source, str) else source
    except SyntaxError:
        return None
    for line, strange in found_in(cell):
        if line_id(line) not in COURSE_LINES:
            begin = ast.unparse(cell).partition("\n")[0][:60]
            return f"in the cell that begins with `{begin}`, line {strange[0]}: {REFUSAL.format(strange[1])}"
    return None


def found_in(cell: ast.AST) -> Iterator[tuple[ast.stmt, tuple[int, str]]]:
    """Each line of a cell, a definition as a whole, in which something is not allowed; where in it, and what it is."""
    nodes = list(ast.walk(cell))
    own = {node.id for node in nodes if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)}
    own |= {node.arg for node in nodes if isinstance(node, ast.arg)}
    own |= {node.name for node in nodes if isinstance(node, ast.FunctionDef | ast.ClassDef)}
    local = local_names(ast.unparse(cell))
    for line in getattr(cell, "body", []):
        for node in ast.walk(line):
            if isinstance(node, ast.Name) and node.id in local:
                continue
            for strange in (*_strange(node), *_changes(node, own)):
                yield line, (getattr(node, "lineno", line.lineno), strange)


def line_id(line: ast.stmt) -> str:
    """A line of a cell as a short number, from its names and texts: so it is the same in every Python."""
    parts = [
        [type(node).__name__, *(text for _, text in ast.iter_fields(node) if isinstance(text, str))]
        for node in ast.walk(line)
    ]
    return hashlib.sha256(repr(parts).encode()).hexdigest()[:16]


def _strange(node: ast.AST) -> Iterator[str]:
    """The names in one node of a program's syntax tree that an answer may not use."""
    banned: list[str] = []
    match node:
        case ast.Import(names) | ast.ImportFrom(names=names):
            for alias in names:
                package, *inside = ".".join(filter(None, [getattr(node, "module", ""), alias.name])).split(".")
                if package not in ALLOWED_PACKAGES:
                    yield f"`import {package}`"
                if package == "labcourse" and "check" in inside:
                    yield "`labcourse.check`"
                banned += [name for name in inside if name in BANNED_MEMBERS or _is_hidden(name) or _is_special(name)]
        case ast.Attribute(attr="check"):
            yield "`labcourse.check`"
        case ast.Attribute(owner, name):
            hidden = _is_hidden(name) and ast.unparse(owner) not in ("self", "cls", "super()")
            if name in BANNED_MEMBERS or hidden or _is_special(name):
                banned.append(name)
        case ast.Name(name) if name in BANNED_NAMES or _is_special(name):
            banned.append(name)
        case ast.FunctionDef(name) | ast.ClassDef(name) | ast.Constant(str(name)) if _is_special(name):
            banned.append(name)  # a constant, too: getattr(one, "__globals__")
        case ast.MatchClass(kwd_attrs=read):
            banned += [name for name in read if name in BANNED_MEMBERS or _is_hidden(name) or _is_special(name)]
        case ast.Call(function, given) if ast.unparse(function).endswith(("getattr", "attrgetter")):
            banned += [str(getattr(one, "value", "")) for one in given if _is_hidden(str(getattr(one, "value", "")))]
    yield from (f"`{name}`" for name in banned)


def _is_special(name: str) -> bool:
    return bool(re.fullmatch(r"__.*[^_].*__", name)) and name not in ALLOWED_SPECIAL


def _is_hidden(name: str) -> bool:
    """Whether a name has one underscore in front: `collections._sys` is the module `sys`."""
    return bool(re.match("_[A-Za-z]", name)) and name not in NAMEDTUPLE_MEMBERS


def _changes(node: ast.AST, own: set[str]) -> Iterator[str]:
    """An attribute that a node changes, or an item of one, other than of an object to which the program gives a name.

    An item, as of the dict `numbers["two"]`, may be changed: it may be from another of the student's cells.
    """
    if isinstance(node, ast.Attribute | ast.Subscript) and not isinstance(node.ctx, ast.Load):
        root: ast.expr = node
        while isinstance(root, ast.Subscript):
            root = root.value
        if isinstance(root, ast.Name):
            return
        while isinstance(root, ast.Attribute | ast.Subscript | ast.Call):
            root = root.func if isinstance(root, ast.Call) else root.value
        if isinstance(root, ast.Name) and root.id not in own:
            yield f"`{ast.unparse(node)} = ...`, which changes an object from outside,"


def refused() -> str | None:
    """At home, grading's reason why a cell that the present one needs does not count, or None if all of them do."""
    if not (get_ipython := getattr(builtins, "get_ipython", None)):
        return None  # a program
    cells = [plain(cell) for cell in get_ipython().history_manager.input_hist_raw]
    *others, _ = [cells[place] for place in needed(cells, {len(cells) - 1})]
    return next(filter(None, map(tampering, others)), None)


class Guard(ast.NodeTransformer):
    """IPython gives it the syntax tree of a cell before the cell is run."""

    def visit(self, cell: ast.AST) -> ast.AST:
        """The tree as it is. Raises IPython's InputRejected if the cell could change a check."""
        from IPython.core.error import InputRejected

        try:
            found = tampering(cell)
        except Exception as error:  # IPython would go on without this guard
            found = REFUSAL.format(f"a cell that cannot be looked at ({type(error).__name__})")
        if found:
            raise InputRejected(found)
        return cell


ATTRIBUTES_OF_FRAMES = {f"{kind}_{part}" for kind in ("gi", "cr", "ag", "tb") for part in ("frame", "code")}
COMPILERS = (
    "IPython",
    "ast",
    "codeop",
    "collections",
    "dataclasses",
    "importlib.",
    "numexpr",
    "symtable",
    "torch",
    "triton",
)
_NOTICED: list[str] = []  # what an answer tried while it ran


def by_answer(frame: FrameType | None) -> bool:
    """Whether an answer's code has called the code of a frame, by way of others or not; a check's own call has not."""
    others = (CHECKS, "importlib.")  # nor has what a module does while it is imported
    while frame and not _in_a_cell(frame) and not frame.f_globals.get("__name__", "").startswith(others):
        frame = frame.f_back
    return frame is not None and _in_a_cell(frame)


def _in_a_cell(frame: FrameType) -> bool:
    """Whether a frame's code is of a notebook: a program's main module, unlike a notebook's, has a `__spec__`."""
    return frame.f_globals.get("__name__") == "__main__" and not frame.f_globals.get("__spec__")


def notice(event: str, given: tuple) -> None:
    """An audit hook of Python: refuses what a look at an answer's source cannot see, before it is done.

    Such are text that becomes code, in whatever library; a new process; the stack; and the process's own files.
    """
    if not _BEFORE or event not in ("compile", "os.fork", "subprocess.Popen", "open", "object.__getattr__"):
        return
    caller, found = sys._getframe(1), None
    match event, *given:
        case "compile", str() | bytes() as text, *_:
            asks: FrameType | None = caller
            while asks and asks.f_globals.get("__name__") == "typing":  # for the hints of whoever asks
                asks = asks.f_back
            if asks and not asks.f_globals.get("__name__", "").startswith(COMPILERS):
                found = tampering(text.decode() if isinstance(text, bytes) else text)
        case (("os.fork" | "subprocess.Popen"), *_):
            found = REFUSAL.format("a new process")
        case "open", path, *_ if isinstance(path, int) or str(path).startswith(("/proc", "/dev/fd")):
            found = REFUSAL.format(f"the file {path}")
        case "object.__getattr__", _, str(name) if name in ATTRIBUTES_OF_FRAMES:
            found = REFUSAL.format(f"`{name}`") if _in_a_cell(caller) else None
    if found and by_answer(caller):
        _NOTICED.append(found)
        raise PermissionError(found)


def noticed() -> str | None:
    """What an answer tried that is not allowed, or None."""
    return _NOTICED[0] if _NOTICED else None


_BEFORE: dict[str, tuple[Any, dict[str, Any]]] = {}  # `_tools` before the answers; empty where nothing is graded


def start() -> None:
    """Look at every cell from now on, and remember the tools of the checks at the end of the present cell.

    The import of `labcourse.check` calls it, in a notebook's locked setup cell and so before any answer, if grading
    has set the variable LABKIT_CHECK_SEED.
    """
    if not (get_ipython := getattr(builtins, "get_ipython", None)):  # as IPython has it while it runs a cell
        return
    shell = get_ipython()

    def remember(_result: object) -> None:
        if not _BEFORE:
            importlib.import_module("torch._dynamo")  # wraps torch.manual_seed
            importlib.import_module(f"{CHECKS}notebook_{shell.user_ns['ledger'].notebook}")
            _BEFORE.update(_tools())

    shell.ast_transformers.append(Guard())
    sys.addaudithook(notice)
    shell.events.register("post_run_cell", remember)


def _tools() -> dict[str, tuple[Any, dict[str, Any]]]:
    """The modules that checks work with, and the classes in them, by name, with their functions."""
    loaded = sys.modules.items()
    owners: dict[str, Any] = {name: one for name, one in loaded if name in TOOLS or name.startswith(OWN_PACKAGES)}
    for value in [value for module in owners.values() for value in vars(module).values()]:
        if isinstance(value, type) and f"{value.__module__}.".startswith(
            (*OWN_PACKAGES, "torch.", "pandas.", "random.")
        ):
            owners[f"{value.__module__}.{value.__qualname__}"] = value
    return {name: (owner, _functions(owner)) for name, owner in owners.items()}


def _functions(owner: Any) -> dict[str, Any]:
    """Everything that can be called, by name, with the code of Python functions, which can be replaced, too."""
    kinds = (staticmethod, classmethod, property)
    called = {name: one for name, one in vars(owner).items() if callable(one) or isinstance(one, kinds)}
    return {name: (one, getattr(one, "__code__", None)) for name, one in called.items() if name not in IPYTHON_BUILTINS}


def modes() -> int:
    """How many of PyTorch's modes see each operation now: those of a check, or of an answer."""
    return torch._C._len_torch_function_stack() + torch._C._len_torch_dispatch_stack()


def changed(modes_before: int = 0) -> str | None:
    """The full name of a function that is not the one from before the answers, or None where nothing is graded."""
    for owner_name, (owner, before) in _BEFORE.items():
        now = vars(owner)
        for name, (one, code) in before.items():
            if now.get(name) is not one or (code and one.__code__ is not code):
                return f"{owner_name}.{name}"
        if not isinstance(owner, ModuleType):  # modules may load more of theirs
            for name in now.keys() - before.keys():
                if callable(now[name]):
                    return f"{owner_name}.{name}"
    if _BEFORE and modes() != modes_before:
        return "PyTorch's way to call operations"
    return None


@contextmanager
def calls_of(references: tuple[Callable, ...]) -> Iterator[list[str]]:
    """Inside the block, collects the names of the references that are called, except by a check.

    A profiler sees the calls, under any name. For a class it looks for `__init__`, if the class has one.
    """
    names: dict[CodeType, str] = {}
    for one in {*references, *parts_of(references)}:
        codes = _codes(one)
        names |= dict.fromkeys([codes["__init__"]] if "__init__" in codes else codes.values(), _full_name(one))
    called: list[str] = []

    def look(frame: FrameType, event: str, _: object) -> None:
        if event == "call" and frame.f_code in names:
            if by_answer(frame.f_back):
                called.append(names[frame.f_code])

    earlier = sys.getprofile()
    sys.setprofile(look if names else earlier)
    try:
        yield called
    finally:
        sys.setprofile(earlier)


def parts_of(references: Iterable[Callable]) -> Iterator[Callable]:
    """The functions and classes that right answers use themselves, as `busy` uses `Union`.

    Of those from other modules of labkit, an answer may use the same.
    """
    for one in references:
        for code in _codes(one).values() if isinstance(one, FunctionType) else ():
            for part in filter(callable, (one.__globals__.get(name) for name in code.co_names)):
                if _full_name(part).startswith(CHECKS):
                    yield from parts_of([part])
                elif getattr(part, "__module__", "") == one.__module__ or _full_name(one).startswith(CHECKS):
                    if _full_name(part).startswith(OWN_PACKAGES):
                        yield part


def not_own(answer: Any, references: tuple[Callable, ...], called: list[str]) -> str | None:
    """The reason why a right answer does not count as the student's own work, or None if it does.

    A copy is not found: the text of labkit's function, typed in, is an answer like any other.

    Args:
        answer: a function or class.
        references: labkit's own answers to this exercise.
        called: the names of those that the answer has called.
    """
    layers = [answer, *(answer if isinstance(answer, type) else type(answer)).__mro__]
    codes = {code for layer in layers for code in _codes(layer).values()}
    same = [_full_name(one) for one in references if codes & {*_codes(one).values()}]
    if same or _full_name(answer).startswith(OWN_PACKAGES):
        return f"this is the library's own {[*same, _full_name(answer)][0]}: write it yourself."
    return f"your answer calls the library's own {called[0]}: write it yourself." if called else None


def _codes(one: Any) -> dict[str, CodeType]:
    """The code of a function, or of the methods of a class, by name."""
    if isinstance(one, type):
        methods = [
            value for value in vars(one).values() if isinstance(value, FunctionType | staticmethod | classmethod)
        ]
        return {name: code for method in methods for name, code in _codes(method).items()}
    while inner := getattr(one, "func", getattr(one, "__wrapped__", getattr(one, "__func__", None))):
        one = inner  # of a partial, a decorated function or a method
    return {one.__name__: one.__code__} if isinstance(one, FunctionType) else {}


def _full_name(one: Any) -> str:
    return f"{getattr(one, '__module__', '')}.{getattr(one, '__qualname__', '')}"
