"""The published data sets: where they come from, and the files and checksums they must have."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tolerant.extras import extra


@dataclass(frozen=True)
class Published:
    """One download: the files it leaves in the data folder and the addresses they come from.

    files: name -> md5 of the content (for a .gz file, of what is in it, since packing it again changes
        the file; for label arrays, of the arrays). Checked at every load, so that runs start from the
        same bytes everywhere. The sums agree with those in public code.
    remotes: address -> md5 of what lies there, as its publisher states it; None where the publisher
        states none, and `files` decides.
    """

    title: str
    folder: str
    files: Mapping[str, str]
    remotes: Mapping[str, str | None]
    size_mb: int
    licence: str


_FASHION = "https://raw.githubusercontent.com/zalandoresearch/fashion-mnist/master/data/fashion"
_CIFAR_N = "https://github.com/UCSC-REAL/cifar-10-100n/raw/main/data"

PUBLISHED: dict[str, Published] = {
    "cifar10": Published(
        "CIFAR-10",
        "cifar-10-batches-bin",
        {
            "data_batch_1.bin": "5dd7e06a14cb22eb9f671a540d1b7c25",
            "data_batch_2.bin": "5ea93a67294ea407fff1d09f752e9692",
            "data_batch_3.bin": "942cd6a4bcdd0dd3c604fbe906cb4421",
            "data_batch_4.bin": "ae636b3ba5c66a11e91e8cb52e771fcb",
            "data_batch_5.bin": "53f37980c15c3d472c316c40844f3f0d",
            "test_batch.bin": "803d5f7f4d78ea53de84dbe85f74fb6d",
        },
        {"https://www.cs.toronto.edu/~kriz/cifar-10-binary.tar.gz": "c32a1d4ab5d03f1284b67883e8d87530"},
        170,
        "none stated; cite Krizhevsky 2009",
    ),
    "cifar100": Published(
        "CIFAR-100",
        "cifar-100-binary",
        {
            "train.bin": "6172c7755cfe09b2fe270c85cebc1b15",
            "test.bin": "4499cfba6c016c1be1438163640a0898",
        },
        {"https://www.cs.toronto.edu/~kriz/cifar-100-binary.tar.gz": "03b5dce01913d631647c71ecec9e9cb8"},
        169,
        "none stated; cite Krizhevsky 2009",
    ),
    "fashion-mnist": Published(
        "Fashion-MNIST",
        "fashion-mnist",
        {
            "train-images-idx3-ubyte.gz": "f4a8712d7a061bf5bd6d2ca38dc4d50a",
            "train-labels-idx1-ubyte.gz": "9018921c3c673c538a1fc5bad174d6f9",
            "t10k-images-idx3-ubyte.gz": "8181f5470baa50b63fa0f6fddb340f0a",
            "t10k-labels-idx1-ubyte.gz": "15d484375f8d13e6eb1aabb0c3f46965",
        },
        {
            f"{_FASHION}/train-images-idx3-ubyte.gz": "8d4fb7e6c68d591d4c3dfef9ec88bf0d",
            f"{_FASHION}/train-labels-idx1-ubyte.gz": "25c81989df183df01b3e8a0aad5dffbe",
            f"{_FASHION}/t10k-images-idx3-ubyte.gz": "bef4ecab320f06d8554ea6380940ec79",
            f"{_FASHION}/t10k-labels-idx1-ubyte.gz": "bb300cfdad3c16e7a12a480ee83cd310",
        },
        31,
        "MIT",
    ),
    "cifar10n": Published(
        "CIFAR-10N human labels",
        "cifar-n",
        {"cifar10n_labels.npz": "6e0fa9f3cd89179617247acda7453b80"},
        {f"{_CIFAR_N}/CIFAR-10_human.pt": None},
        3,
        "CC BY-NC 4.0",
    ),
    "cifar100n": Published(
        "CIFAR-100N human labels",
        "cifar-n",
        {"cifar100n_labels.npz": "b274f5e1423d5f4c9ae93e91de1d2089"},
        {f"{_CIFAR_N}/CIFAR-100_human.pt": None},
        1,
        "CC BY-NC 4.0",
    ),
}


def data_root(root: str | os.PathLike[str] | None = None) -> Path:
    """The data folder: `root`, or TOLERANT_DATA, or the platform's cache."""
    if root is None:
        root = os.environ.get("TOLERANT_DATA") or None
    try:
        if root is None:
            root = Path(extra("platformdirs").user_cache_dir("tolerant")) / "data"
        return Path(root).expanduser()
    except RuntimeError as error:  # a user without a name, in a container
        raise ValueError(
            "no folder for the data: this user has no home folder. Set TOLERANT_DATA to one, or pass "
            "root=... (--root)"
        ) from error


def missing_files(name: str, root: str | os.PathLike[str] | None = None) -> list[Path]:
    """The files of a published data set that are not in the data folder."""
    folder = data_root(root) / PUBLISHED[name].folder
    return [folder / file for file in PUBLISHED[name].files if not (folder / file).is_file()]


def find_file(name: str, file: str, root: str | os.PathLike[str] | None = None) -> Path:
    """Where one file of a published data set lies, or how to get it."""
    missing = missing_files(name, root)
    if missing:
        published = PUBLISHED[name]
        raise FileNotFoundError(
            f"{published.title} is not in {data_root(root)} ({missing[0].name} is missing): "
            f"`tolerant download {name}` gets it ({published.size_mb} MB), "
            "or set TOLERANT_DATA to the folder that has it"
        )
    return data_root(root) / PUBLISHED[name].folder / file


def check_content(name: str, path: Path, content: Any) -> None:
    """A ValueError unless `content`, read from `path`, is what was published."""
    found = hashlib.md5(content, usedforsecurity=False).hexdigest()
    if found != PUBLISHED[name].files[path.name]:
        raise ValueError(
            f"{path} is damaged: its content has md5 {found}, the published one "
            f"{PUBLISHED[name].files[path.name]}. Delete it and run `tolerant download {name}`"
        )
