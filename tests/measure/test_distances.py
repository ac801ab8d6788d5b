"""FID and KID against the formulas of their papers, with a small network in Inception's place."""

import urllib.error

import numpy as np
import pytest
import torch
from torch import nn

import labkit
from labkit.data.images import write_picture
from labkit.measure.scores import Scores, fid_and_kid

fid_of_torchmetrics = pytest.importorskip("torchmetrics.image.fid")


class Small(nn.Module):
    """Means and spreads of the channels, and a few numbers more: (B, 3, H, W) to (B, 9)."""

    def forward(self, pictures):
        x = pictures.float() / 255
        return torch.cat([x.mean((2, 3)), x.std((2, 3)), x.square().mean((2, 3))], 1)


@pytest.fixture
def small(monkeypatch):
    monkeypatch.setattr(fid_of_torchmetrics, "NoTrainInceptionV3", lambda *_: Small())


def noise(n, seed, darker=1.0, size=8):
    random = torch.Generator().manual_seed(seed)
    return (torch.rand(n, 3, size, size, generator=random) * 255 * darker).to(torch.uint8)


def root(matrix):
    values, vectors = np.linalg.eigh(matrix)
    return vectors * np.sqrt(values.clip(0)) @ vectors.T


def fid(a, b):
    """Heusel et al. 2017, equation 6, with the root of a symmetric product."""
    between = root(root(np.cov(a.T)) @ np.cov(b.T) @ root(np.cov(a.T)))
    return ((a.mean(0) - b.mean(0)) ** 2).sum() + np.trace(np.cov(a.T) + np.cov(b.T) - 2 * between)


def kid(a, b):
    """Binkowski et al. 2018, equation 4, with the kernel (x y / d + 1) ** 3."""

    def kernel(x, y):
        return (x @ y.T / x.shape[1] + 1) ** 3

    n, m = len(a), len(b)
    within = [(kernel(x, x).sum() - np.trace(kernel(x, x))) / (len(x) * (len(x) - 1)) for x in (a, b)]
    return sum(within) - 2 * kernel(a, b).sum() / (n * m)


def test_they_equal_the_formulas(tmp_path, small):
    real, fake = noise(40, 0), noise(40, 1, darker=0.8)
    found = fid_and_kid(real, fake)
    a, b = (Small()(pictures).double().numpy() for pictures in (real, fake))
    assert found.fid == pytest.approx(fid(a, b), rel=1e-4)
    assert found.kid == pytest.approx(kid(a, b), rel=1e-4) and found.kid_deviation < 1e-6  # each subset is the whole
    assert fid_and_kid(real, real).fid == pytest.approx(0, abs=1e-6)
    for name, pictures in (("real", real), ("fake", fake)):
        for number, picture in enumerate(pictures):
            write_picture(picture, tmp_path / name / f"{number:03d}.png")
    assert fid_and_kid(tmp_path / "real", tmp_path / "fake").fid == pytest.approx(found.fid)


def test_pictures_may_differ_in_size(small):
    sizes = [*noise(3, 0), *noise(3, 1, size=12), *noise(3, 2)]
    assert fid_and_kid(sizes, noise(9, 3)).fid > 0


def test_what_cannot_be_compared_is_refused(small):
    with pytest.raises(labkit.errors.DataError, match="2 real and 1 fake pictures"):
        fid_and_kid(noise(2, 0), noise(1, 0))


@pytest.fixture
def folders(tmp_path):
    """Two folders of two pictures each."""
    for number, picture in enumerate(noise(4, 0)):
        write_picture(picture, tmp_path / ("a" if number < 2 else "b") / f"{number}.png")
    return tmp_path / "a", tmp_path / "b"


@pytest.fixture
def offline(monkeypatch):
    module = pytest.importorskip("torch_fidelity.feature_extractor_inceptionv3")

    def refused(*given, **named):
        raise urllib.error.URLError("no network")

    monkeypatch.setattr(module, "load_state_dict_from_url", refused)


def test_a_download_that_fails_says_what_to_do(offline, folders, call):
    status, _, errors = call("score", *folders)
    assert status == 1 and "no network" in errors and "Traceback" not in errors
    assert f"put it into {torch.hub.get_dir()}/checkpoints" in " ".join(errors.split())


def test_a_run_that_could_not_be_scored_does_not_begin(offline, tiny, tmp_path):
    for name in ("trainA", "trainB", "testA", "testB"):
        write_picture(noise(1, 0, size=16)[0], tmp_path / "album" / name / "1.png")
    data = labkit.folders(tmp_path / "album", size=16)
    with pytest.raises(labkit.LabkitError, match="cannot be downloaded"):
        labkit.fit(labkit.make_step(tiny()), data, 4, checkpoint=tmp_path, callbacks=[Scores(data, 2)])
    assert not list(tmp_path.glob("*.pt"))


@pytest.mark.slow
def test_the_real_code_runs(monkeypatch, folders, call):
    """Inception's own layers, with random numbers in the place of the weights that it is published with."""
    module = pytest.importorskip("torch_fidelity.feature_extractor_inceptionv3")
    monkeypatch.setattr(module, "load_state_dict_from_url", lambda *given, **named: {})
    monkeypatch.setattr(module.FeatureExtractorInceptionV3, "load_state_dict", lambda *given: None)
    status, output, errors = call("score", *folders)
    assert status == 0 and output.startswith("FID ") and "KID " in output, errors
