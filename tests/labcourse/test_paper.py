"""The course paper's tables: read as printed, and what data/paper/README.md and notebook 04 say of them."""

import pytest

import labcourse
from labcourse.paper import PROFILES
from labkit.errors import LabkitError
from labkit.simulate.operator_replay import HOST_US, RECORDED_HOST_US


def test_a_table_has_100_rows_and_says_where_it_comes_from():
    for name in PROFILES:
        profile = labcourse.paper_profile(name)
        assert len(profile) == 100 and (profile["name"] != "(all)").all()
        stamp = profile.attrs["stamp"]
        assert stamp["device"] == "NVIDIA A100" and "La" in stamp["recorded by others"] and stamp["steps"] == 20
    with pytest.raises(LabkitError, match="did you mean .unet_b16_streams."):
        labcourse.paper_profile("unet_b16_stream")


@pytest.mark.slow
def test_the_model_is_within_its_bars_of_the_tables():
    """The step within 5 %, the work on the GPU within 10 %."""
    table = labcourse.paper_errors()
    ratio = table.set_index(["profile", "part"])["ratio"]
    assert ratio.xs("step", level="part").between(0.95, 1.05).all(), ratio
    assert ratio.xs("work on the GPU", level="part").between(0.9, 1.1).all(), ratio
    assert table.attrs["stamp"]["SIMULATED"] and len(table) == 8


def test_the_labs_host_is_that_of_the_course_paper_with_and_without_its_profiler():
    profile = labcourse.paper_profile("resnet_b1_baseline").set_index("name")
    calls = profile["calls"].filter(regex="^cuda(LaunchKernel|LaunchKernelExC|MemcpyAsync|MemsetAsync)$").sum()
    assert calls / labcourse.STEPS == pytest.approx(4668, abs=1)
    assert round(1e3 * labcourse.UNRECORDED_MS * labcourse.STEPS / calls) == HOST_US
    assert round(profile["self_cuda_us"]["ProfilerStep*"] / calls) == RECORDED_HOST_US
