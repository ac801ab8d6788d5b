"""Imports run in one direction: between packages, without circles, and down the tables of CONTRIBUTING.md."""

import ast
import graphlib
import re
from pathlib import Path

ROOT = Path(__file__).parents[1]
PACKAGES = ("labtrace", "labkit", "labcourse", "tools")  # none imports one that comes after it
FUNCTIONS = ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda


def files(pattern):
    return [path for package in PACKAGES for path in sorted((ROOT / package).rglob(pattern))]


def dotted(path):
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def imported(node):
    """What an import statement names: modules, or names in modules."""
    if isinstance(node, ast.ImportFrom):
        assert not node.level, "imports are absolute"
        return [f"{node.module}.{alias.name}" for alias in node.names]
    return [alias.name for alias in node.names] if isinstance(node, ast.Import) else []


def all_imports(path):
    return [name for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))) for name in imported(node)]


def imports_when_loaded(node):
    """Without those inside of functions, and those for type checkers."""
    for child in ast.iter_child_nodes(node):
        for_types = isinstance(child, ast.If) and ast.unparse(child.test) == "TYPE_CHECKING"
        if not isinstance(child, FUNCTIONS) and not for_types:
            yield from imported(child)
            yield from imports_when_loaded(child)


MODULES = {dotted(path): path for path in files("*.py")}
# Names that a package loads lazily, in the module that its stub says.
LAZY = {
    f"{dotted(stub)}.{alias.asname}": f"{node.module}.{alias.name}"
    for stub in files("__init__.pyi")
    for node in ast.parse(stub.read_text(encoding="utf-8")).body
    if isinstance(node, ast.ImportFrom)
    for alias in node.names
}


def module_of(name):
    """The module of ours that an imported name is in, or "" if there is none."""
    name = LAZY.get(name, name)
    while name and name not in MODULES:
        name = name.rpartition(".")[0]
    return name


def packages_around(module):
    parts = module.split(".")
    return {".".join(parts[:n]) for n in range(1, len(parts))}


def loaded_by(module, names):
    """The modules that are loaded for a module: those it imports by these names, and the packages they are in."""
    loaded = {module_of(name) for name in names}
    around = {package for name in loaded for package in packages_around(name)} - packages_around(module)
    return (loaded | around) & MODULES.keys() - {module}


TREES = {module: ast.parse(path.read_text(encoding="utf-8")) for module, path in MODULES.items()}
LOADED = {module: loaded_by(module, imports_when_loaded(tree)) for module, tree in TREES.items()}


def rooms():
    """The rows of the tables of CONTRIBUTING.md for the packages, from top to bottom: a list of paths each."""
    package, rows = "", []
    for line in (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8").splitlines():
        if heading := re.match(r"\| in `(\w+/)` \|", line):
            package = heading[1]
        elif package and (row := re.match(r"\| (`.+?`) \|", line)):
            rows.append([package + path.removesuffix("/") for path in re.findall(r"`(.+?)`", row[1])])
        elif not line.startswith("|"):
            package = ""
    return rows


def test_no_package_imports_one_above_it():
    """In functions, in stubs, and for type checkers, too."""
    for path in files("*.py") + files("*.pyi"):
        above = PACKAGES[PACKAGES.index(path.relative_to(ROOT).parts[0]) + 1 :]
        assert not [name for name in all_imports(path) if name.partition(".")[0] in above], path


def test_only_what_works_beside_pytorch_is_tested_with_it_in_labtrace():
    """Its other tests run in an environment without PyTorch, where neither labkit nor labcourse is."""
    beside = {"test_achieved.py", "test_watch.py", "test_without_torch.py"}
    for path in (ROOT / "tests" / "labtrace").glob("*.py"):
        others = {name.partition(".")[0] for name in all_imports(path)} & {*PACKAGES[1:], "torch", "tiny"}
        assert path.name in beside or not others, path


def test_no_modules_import_each_other_in_a_circle():
    assert "labkit.models.step" in LOADED["labkit.models.cyclegan"]
    graphlib.TopologicalSorter(LOADED).prepare()  # its error names the circle


def test_those_of_labtrace_do_not_in_functions_or_for_type_checkers_either():
    ours = {name: loaded_by(name, all_imports(path)) for name, path in MODULES.items() if name.startswith("labtrace")}
    assert "labtrace.replay.launch_queue" in ours["labtrace.findings.remedies"]
    graphlib.TopologicalSorter(ours).prepare()


def test_modules_import_only_what_stands_above_them_in_contributing():
    row_of = {path: row for row, paths in enumerate(rooms()) for path in paths}
    assert not [path for path in row_of if not (ROOT / path).exists()], "rows of files that are not there"

    def row(module):
        path = MODULES[module].relative_to(ROOT)
        return next((row_of[str(place)] for place in (path, *path.parents) if str(place) in row_of), None)

    modules = [module for module in MODULES if not module.startswith("tools")]
    assert not [module for module in modules if row(module) is None], "modules in no row"
    upward = [(module, below) for module in modules for below in LOADED[module] if row(below) > row(module)]
    assert not upward, "a module imports one below it"
