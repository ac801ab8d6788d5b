"""scores.csv: numbers by which runs can be compared, at even distances and at the end."""

import torch
from tiny import rows_of

import labkit
from labkit.data.batches import UnpairedData
from labkit.measure import scores


def test_fruit_is_scored_by_its_shortfall_and_each_step_once(train, fruit, tmp_path):
    _, run = (train(steps, tmp_path, scores.Scores(fruit, every=2)) for steps in (3, 5))
    found = labkit.quality(run.model, fruit)
    assert [int(row["step"]) for row in rows_of(tmp_path / scores.FILE)] == [2, 3, 4, 5]
    assert float(rows_of(tmp_path / scores.FILE)[-1]["shortfall"]) == max(found["fg"] / 9, found["bg"] / 4)


def test_a_run_that_ended_before_its_score_was_written_is_scored_when_it_is_started_again(train, fruit, tmp_path):
    train(2, tmp_path)
    train(2, tmp_path, scores.Scores(fruit, every=1))
    assert [row["step"] for row in rows_of(tmp_path / scores.FILE)] == ["2"]


def test_photographs_are_scored_by_their_distance_to_the_other_domain(tiny, monkeypatch):
    seen = {}

    def distances(real, fake, device):
        seen.update(real=real, fake=fake)
        return scores.Distances(fid=12.0, kid=0.5, kid_deviation=0.1)

    monkeypatch.setattr(scores, "fid_and_kid", distances)
    noise = torch.randint(0, 256, (4, 3, 16, 16), dtype=torch.uint8)
    data = UnpairedData("photos", 16, noise, noise, noise[:2], noise[2:])
    assert scores.score(tiny(), data) == {"kid": 0.5, "fid": 12.0}
    assert torch.equal(seen["real"], noise[2:]) and len(seen["fake"]) == 2
    assert seen["fake"][0].shape == (3, 16, 16) and seen["fake"][0].dtype == torch.uint8


def test_the_checkpoint_with_the_lowest_score_is_kept_also_over_a_stop(train, fruit, tmp_path, monkeypatch):
    shortfalls = iter([3.0, 1.0, 2.0, 1.5])  # of steps 1 to 4
    monkeypatch.setattr(scores, "score", lambda model, data: {"shortfall": next(shortfalls)})
    for steps in (3, 4):
        train(steps, tmp_path, scores.Scores(fruit, every=1))
    assert torch.load(tmp_path / scores.BEST)["done"] == 2
    assert not labkit.load_model(tmp_path / scores.BEST).training
