"""Two tiers: ``--tier quick`` is `make test`, ``--tier slow`` is everything that this leaves out. Without it, all runs.

Tests marked `slow` are in the slow tier, and so are cells of notebooks that have this tag. All other cells run in both,
since a cell needs those above it; in the quick tier with the values that their comments give. Of the line
``STEPS = 400  # quick: 4`` that is 4. CONTRIBUTING.md says what is slow, and why.
"""

import re

import pytest

QUICK = re.compile(r"^( *\w+ = ).+  # quick: (.+)$", re.MULTILINE)


def pytest_addoption(parser):
    parser.addoption("--tier", choices=("quick", "slow"), help="the everyday tests, or only those that they leave out")


def is_slow(item):
    return item.get_closest_marker("slow") is not None


def pytest_collection_modifyitems(config, items):
    tier, cells = config.getoption("tier"), [item for item in items if hasattr(item, "cell")]
    for item in cells:
        if "slow" in item.cell.metadata.get("tags", ()):
            item.add_marker("slow")
    if tier == "slow":
        shortened = {item.path for item in cells if is_slow(item) or QUICK.search(item.cell.source)}
        items[:] = [item for item in items if is_slow(item) or item.path in shortened]
    elif tier == "quick":
        for item in cells:
            item.cell.source = QUICK.sub(r"\1\2", item.cell.source)


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item):
    if item.config.getoption("tier") == "quick" and is_slow(item):
        pytest.skip("slow: make test-all runs it")
