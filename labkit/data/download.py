"""The public CycleGAN sets by name: downloaded, checked, and unpacked whole or not at all."""

from __future__ import annotations

import hashlib
from http.client import HTTPException
from pathlib import Path
from tempfile import TemporaryDirectory

from torchvision.datasets.utils import download_url, extract_archive

from labkit.errors import DataError, check_known

URL = "http://efrosgans.eecs.berkeley.edu/cyclegan/datasets/{name}.zip"

# Name: SHA-256 of the archive, as published by TensorFlow Datasets in url_checksums/cycle_gan.txt.
# Cityscapes is absent: its licence keeps the server from offering it.
PUBLIC_SETS = {
    "apple2orange": "845a191e9af8926408ea597001cd03a452e3300a1f44a79fe329b3d59f6e3eb8",
    "cezanne2photo": "3a6c10ca21f9485862f1cbd707744b9dc258954a04631271d23a3605eeb63cff",
    "facades": "9a31ebf3a31b9b5cd195dd5bf62e9308e00cb94604d1019e3889ac84248695c0",
    "horse2zebra": "a74d9d392eecca9966b51287a76ca126af473d9de4f3e8fc0e9cda08fa1730a1",
    "iphone2dslr_flower": "8fcb5e374d631b107e1d961b8c4cd0a186aa2a4ff3e279923f4c426128de7113",
    "maps": "639534f69dbf9f36bef8d6292a7698006361221f83f0285d7c9ca78afe6e8a9e",
    "monet2photo": "88f91b00fc228f97c9411fbf1880ec1d119c98f1722e4cfcfaa2fb35fac05b04",
    "summer2winter_yosemite": "167fe1726807a9d22bd106b4a6c0bd7953b688af924ac1bf967439c4961e49f9",
    "ukiyoe2photo": "02a2a2fb5ecf425ca1bf86aca7304377da64a2a1d3b86df54eb65e4068bf3b08",
    "vangogh2photo": "362c3473e70be0944bda08d49d660eafdc2854df55d697835b8186d1d79caaff",
}


def download(name: str, root: Path | str = "datasets") -> Path:
    """The folder `root`/`name` with the public set `name`, ready for `labkit.folders`; downloaded if not yet there.

    The archive is downloaded and unpacked in a temporary folder inside `root`, which is renamed only when all of it
    is checked and there: a folder `root`/`name` is thus a complete one, and returned without using the network.

    Raises:
        LabkitError: no set has this name.
        DataError: the download fails or is not the published archive, or `root` is unwritable.
    """
    check_known("public set", name, PUBLIC_SETS)
    root = Path(root).expanduser()
    folder = root / name
    if folder.is_dir():
        return folder
    url = URL.format(name=name)
    try:
        root.mkdir(parents=True, exist_ok=True)
        with TemporaryDirectory(dir=root, prefix=f".{name}-") as temporary:
            archive = Path(temporary, "archive.zip")
            download_url(url, temporary, archive.name)
            with archive.open("rb") as file:
                if hashlib.file_digest(file, "sha256").hexdigest() != PUBLIC_SETS[name]:
                    raise DataError(
                        f"The download of {name} is not the published archive, since its SHA-256 differs: the "
                        f"connection broke off after {archive.stat().st_size} bytes, or another file came in its "
                        "place. Call again; if it differs again, do not use files from this connection. Nothing of "
                        "this attempt was kept."
                    )
            extract_archive(archive, temporary)
            archive.with_name(name).rename(folder)
    except (OSError, HTTPException, RuntimeError) as error:
        raise DataError(
            f"{name} could not be fetched from {url} into {root} ({error}). Check the connection and the space on the "
            "disk, then call again; or unpack the archive yourself and give its folder to labkit.folders."
        ) from error
    return folder
