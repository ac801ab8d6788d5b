"""No cell of these notebooks writes to stderr: readers see such text in a red box, and take it for their fault."""

import os
from unittest import mock

import pytest
from nbval import plugin


class Kernel(plugin.RunningKernel):
    """Shows what C++ writes to stderr, too, which ipykernel leaves alone if it finds this variable of pytest's."""

    def __init__(self, *arguments, **settings):
        with mock.patch.dict(os.environ):
            os.environ.pop("PYTEST_CURRENT_TEST", None)
            super().__init__(*arguments, **settings)


plugin.RunningKernel = Kernel


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item):
    yield
    if red := [
        output.text for output in item.test_outputs or () if output.get("name") == "stderr"
    ]:
        item.raise_cell_error("Cell wrote to stderr", "".join(red))
