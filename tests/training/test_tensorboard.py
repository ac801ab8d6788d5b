"""What TensorBoard reads: every curve and picture, also after a kill, and a run that a full disk does not end."""

import pytest
from killing import KilledError, killed_at

import labkit

writing = pytest.importorskip("tensorboard.summary.writer.event_file_writer", reason="TensorBoard is optional")


@pytest.fixture(autouse=True)
def files_in_order(monkeypatch):
    """Counts a test's files from 0: those of one second are read in the order of their names, where 10 is before 9."""
    monkeypatch.setattr(writing, "_global_uid", writing.AtomicCounter(0))


@pytest.fixture
def log(train, tmp_path):
    return lambda steps, *callbacks, **options: train(
        steps, tmp_path, labkit.TensorBoard(tmp_path / "tensorboard"), *callbacks, **options
    )


def read(folder):
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    events = EventAccumulator(str(folder / "tensorboard"))
    events.Reload()
    return events


def steps_of(points):
    return [point.step for point in points]


def test_curves_and_pictures_have_their_steps_and_values(log, tmp_path):
    schedule = labkit.linear_schedule(1, 4)
    run = log(5, report_every=2, sample_every=2, schedule=schedule)
    events = read(tmp_path)
    for name, losses in run.losses.items():
        points = events.Scalars(f"losses/{name}")
        assert steps_of(points) == [2, 4, 5]
        assert [p.value for p in points] == pytest.approx([sum(losses[:2]) / 2, sum(losses[2:4]) / 2, losses[4]])
    rates = events.Scalars("learning rate/generators")
    assert [point.value for point in rates] == pytest.approx([1e-3 * schedule(at) for at in (1, 3, 4)])
    assert steps_of(events.Images("samples")) == [2, 4, 5] and events.Images("samples")[0].width == 4 * 34 + 2


def test_steps_that_a_kill_lost_are_forgotten(log, tmp_path):
    log(3, report_every=1)
    with pytest.raises(KilledError):
        log(9, killed_at(6), report_every=1)
    log(5, report_every=1)
    assert steps_of(read(tmp_path).Scalars("losses/G_A")) == [1, 2, 3, 4, 5]
    log(5)
    assert steps_of(read(tmp_path).Scalars("losses/G_A")) == [1, 2, 3, 4, 5], "a finished run has nothing to add"
