"""The public sets, from a server on this machine: whole and checked, or an error and nothing left behind."""

import hashlib
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from io import BytesIO
from zipfile import ZipFile

import pytest

import labkit
from labkit.data import folders as public
from labkit.errors import DataError, LabkitError


def archive(*entries):
    packed = BytesIO()
    with ZipFile(packed, "w") as file:
        for entry in entries:
            file.writestr(entry, b"a picture, say" * 100)
    return packed.getvalue()


GOOD = archive("horse2zebra/trainA/1.jpg", "horse2zebra/trainB/1.jpg", "horse2zebra/testA/2.jpg")


class Server(ThreadingHTTPServer):
    content, breaks_off, talks_http = GOOD, False, True


class Handler(BaseHTTPRequestHandler):
    def do_GET(self):
        if not self.server.talks_http:
            return self.wfile.write(b"hello\r\n")
        if self.path != "/horse2zebra.zip":
            return self.send_error(404)
        self.send_response(200)
        self.send_header("Content-Length", str(len(self.server.content)))
        self.end_headers()
        length = len(self.server.content) // (2 if self.server.breaks_off else 1)
        self.wfile.write(self.server.content[:length])

    def log_message(self, *_):
        pass


@pytest.fixture
def server(monkeypatch):
    with Server(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        monkeypatch.setenv("no_proxy", "127.0.0.1")
        monkeypatch.setattr(public, "URL", f"http://127.0.0.1:{server.server_port}/{{name}}.zip")
        published = hashlib.sha256(GOOD).hexdigest()
        monkeypatch.setattr(public, "PUBLIC_SETS", {"horse2zebra": published, "maps": published})
        yield server
        server.shutdown()


def test_a_set_is_downloaded_once_and_unpacked(server, tmp_path):
    folder = labkit.download("horse2zebra", tmp_path / "new" / "datasets")
    assert folder == tmp_path / "new" / "datasets" / "horse2zebra"
    assert (folder / "trainA" / "1.jpg").read_bytes() == b"a picture, say" * 100
    assert list(folder.parent.iterdir()) == [folder]  # neither archive nor temporary folder
    server.content = b"gone"
    assert labkit.download("horse2zebra", folder.parent) == folder


FAULTS = [
    ("horse2zebra", {"breaks_off": True}, "invalid hash value"),
    ("horse2zebra", {"content": GOOD[:-1] + b"?"}, "invalid hash value"),
    ("maps", {}, "404"),
    ("horse2zebra", {"talks_http": False}, "could not be fetched from http"),
    ("horse2zebra", {"url": "http://127.0.0.1:9/{name}.zip"}, "could not be fetched from http"),
]


@pytest.mark.parametrize(("name", "fault", "message"), FAULTS)
def test_a_failed_download_leaves_nothing_behind(server, tmp_path, monkeypatch, name, fault, message):
    monkeypatch.setattr(public, "URL", fault.get("url", public.URL))
    vars(server).update(fault)
    with pytest.raises(DataError, match=message):
        labkit.download(name, tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_an_unknown_name_gets_a_suggestion_and_the_list(tmp_path):
    with pytest.raises(LabkitError, match="did you mean 'horse2zebra'.*apple2orange.*vangogh2photo"):
        labkit.download("horses2zebras", tmp_path)


def test_an_unwritable_root_is_named(server, tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(DataError, match="could not be fetched.*exists"):
        labkit.download("horse2zebra", tmp_path / "file")
