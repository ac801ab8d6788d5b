"""The public sets, from an address on this machine: whole and checked, or an error and nothing left behind."""

import hashlib
from zipfile import ZipFile

import pytest

import labkit
from labkit.data import folders as public
from labkit.errors import DataError


@pytest.fixture
def archive(tmp_path_factory, monkeypatch):
    """The file at the address of a set."""
    file = tmp_path_factory.mktemp("server") / "horse2zebra.zip"
    with ZipFile(file, "w") as packed:
        for entry in ("trainA/1.jpg", "trainB/1.jpg", "testA/2.jpg"):
            packed.writestr(f"horse2zebra/{entry}", b"a picture, say" * 100)
    monkeypatch.setattr(public, "URL", f"{file.parent.as_uri()}/{{name}}.zip")
    published = hashlib.sha256(file.read_bytes()).hexdigest()
    monkeypatch.setattr(public, "PUBLIC_SETS", {"horse2zebra": published, "maps": published})
    return file


def test_a_set_is_downloaded_once_and_unpacked(archive, tmp_path):
    folder = labkit.download("horse2zebra", tmp_path / "new" / "datasets")
    assert folder == tmp_path / "new" / "datasets" / "horse2zebra"
    assert (folder / "trainA" / "1.jpg").read_bytes() == b"a picture, say" * 100
    assert list(folder.parent.iterdir()) == [folder]  # neither archive nor temporary folder
    archive.unlink()
    assert labkit.download("horse2zebra", folder.parent) == folder


FAULTS = [
    ("horse2zebra", lambda whole: whole[: len(whole) // 2], "invalid hash value"),
    ("horse2zebra", lambda whole: whole[:-1] + b"?", "invalid hash value"),
    ("maps", bytes, "could not be fetched from file.*No such file"),
]


@pytest.mark.parametrize(("name", "change", "message"), FAULTS)
def test_a_failed_download_leaves_nothing_behind(archive, tmp_path, name, change, message):
    archive.write_bytes(change(archive.read_bytes()))
    with pytest.raises(DataError, match=message):
        labkit.download(name, tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_an_unwritable_root_is_named(archive, tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(DataError, match="could not be fetched.*exists"):
        labkit.download("horse2zebra", tmp_path / "file")
