"""``kill -9`` at a random moment."""

import pytest
from killing import same, same_files, train_killed, train_unbroken


@pytest.mark.slow
def test_a_killed_run_ends_in_the_same_bits_as_an_unbroken_one(tmp_path):
    whole = train_unbroken(tmp_path / "whole", steps=24)
    resumed, left_at = train_killed(tmp_path / "killed", steps=24, seed=0)
    assert 0 < left_at < whole["done"]
    assert same(resumed, whole)
    assert same_files(tmp_path / "killed", tmp_path / "whole")
    assert len(list((tmp_path / "whole" / "kept").iterdir())) == 3
