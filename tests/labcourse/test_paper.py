"""The course paper's tables: read as printed, and what data/paper/README.md and notebook 04 say of them."""

import pytest

import labcourse
from labkit.errors import LabkitError
from labkit.simulate import HOST_US, RECORDED_HOST_US


def own_ms(name):
    """Milliseconds a step of each printed name; rows of one name together."""
    profile = labcourse.paper_profile(name)
    return profile.groupby("name")["self_cuda_us"].sum() / 1e3 / labcourse.STEPS


def work_ms(name):
    return labcourse.paper_profile(name).attrs["stamp"]["gpu_us"] / 1e3 / labcourse.STEPS


def launches_at_batch_1():
    calls = labcourse.paper_profile("resnet_b1_baseline").set_index("name")["calls"] / labcourse.STEPS
    return calls.filter(regex="^cuda(LaunchKernel|LaunchKernelExC|MemcpyAsync|MemsetAsync)$").sum()


def convolutions_ms(name):
    return own_ms(name).filter(regex="^aten::(cudnn_conv|convolution_b)").sum()


@pytest.mark.parametrize(
    "name, work, span, convolutions",
    [
        ("resnet_b1_baseline", 67.0, 134.6, 41.2),
        ("resnet_b16_baseline", 733.0, 724.7, 431.3),
        ("resnet_b16_streams", 899.2, None, 571.6),
        ("unet_b16_baseline", 157.0, 150.9, 87.7),
        ("unet_b16_streams", 201.1, None, 125.8),
    ],
)
def test_the_totals_are_those_of_the_readme(name, work, span, convolutions):
    assert work_ms(name) == pytest.approx(work, abs=0.051)
    assert convolutions_ms(name) == pytest.approx(convolutions, abs=0.051)
    if span:
        assert own_ms(name)["ProfilerStep*"] == pytest.approx(span, abs=0.051)


def test_a_table_has_100_rows_and_says_where_it_comes_from():
    for name in labcourse.paper.PROFILES:
        profile = labcourse.paper_profile(name)
        assert len(profile) == 100 and (profile["name"] != "(all)").all()
        stamp = profile.attrs["stamp"]
        assert stamp["device"] == "NVIDIA A100" and "La" in stamp["recorded by others"] and stamp["steps"] == 20
    with pytest.raises(LabkitError, match="did you mean .unet_b16_streams."):
        labcourse.paper_profile("unet_b16_stream")


def test_a_step_of_one_picture_has_so_many_launches():
    assert launches_at_batch_1() == pytest.approx(4668, abs=1)


@pytest.mark.slow
def test_the_model_is_within_its_bars_of_the_tables():
    """The step within 10 %, the work on the GPU within 15 %, and every kind that is over 5 % of it within 30 %."""
    table = labcourse.paper_errors()
    ratio = table.set_index(["profile", "part"])["ratio"]
    assert ratio.xs("step", level="part").between(0.9, 1.1).all(), ratio
    assert ratio.xs("work on the GPU", level="part").between(0.85, 1.15).all(), ratio
    kinds = table[(table["share"] > 0.05) & ~table["part"].isin(["step", "work on the GPU"])]
    assert kinds["ratio"].between(0.7, 1.3).all() and len(kinds) >= 14, kinds
    assert table.attrs["stamp"]["SIMULATED"]


def test_the_labs_host_is_that_of_the_course_paper_with_and_without_its_profiler():
    assert round(1e3 * labcourse.UNRECORDED_MS / launches_at_batch_1()) == HOST_US
    assert round(1e3 * own_ms("resnet_b1_baseline")["ProfilerStep*"] / launches_at_batch_1()) == RECORDED_HOST_US
