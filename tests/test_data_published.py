"""The published data sets as they are, where they are present."""

from __future__ import annotations

import hashlib
from pathlib import Path

import numpy as np
import pytest
from data_makers import contents, publish

from tolerant.data import NAMED, load
from tolerant.data.published import PUBLISHED, missing_files

# name -> rows, shape, classes, share of wrong labels in percent (as their authors state it)
FACTS = {
    "cifar10": (50_000, (32, 32, 3), 10, 0.0),
    "cifar100": (50_000, (32, 32, 3), 100, 0.0),
    "cifar100-coarse": (50_000, (32, 32, 3), 20, 0.0),
    "fashion-mnist": (60_000, (28, 28, 1), 10, 0.0),
    "cifar10n-aggre": (50_000, (32, 32, 3), 10, 9.03),
    "cifar10n-random1": (50_000, (32, 32, 3), 10, 17.23),
    "cifar10n-random2": (50_000, (32, 32, 3), 10, 18.12),
    "cifar10n-random3": (50_000, (32, 32, 3), 10, 17.64),
    "cifar10n-worse": (50_000, (32, 32, 3), 10, 40.21),
    "cifar100n": (50_000, (32, 32, 3), 100, 40.20),
    "cifar100n-coarse": (50_000, (32, 32, 3), 20, 26.40),
}


@pytest.mark.data
@pytest.mark.parametrize("name", sorted(set(NAMED) - {"digits"}))
def test_named(name: str, data_folder: Path) -> None:
    rows, shape, classes, wrong = FACTS[name]
    data = load(name, root=data_folder)
    assert data.inputs.shape == (rows, *shape)
    assert data.num_classes == classes
    assert data.true_labels is not None
    assert set(np.bincount(data.true_labels)) == {rows // classes}
    assert 100 * data.flipped.mean() == pytest.approx(wrong, abs=0.03)
    assert data.inputs.flags.writeable, "torch warns of arrays that cannot be written"


@pytest.mark.data
@pytest.mark.parametrize("name", ["cifar10", "cifar100", "fashion-mnist", "cifar10n-worse"])
def test_test_split(name: str, data_folder: Path) -> None:
    data = load(name, split="test", root=data_folder)
    assert len(data) == 10_000
    assert set(np.bincount(data.given_labels)) == {10_000 // data.num_classes}
    assert not data.flipped.any()


@pytest.mark.data
def test_pixels_are_in_place(data_folder: Path) -> None:
    """Against the sum of the array, not of the files it came from."""
    data = load("cifar10", root=data_folder)
    found = hashlib.sha256(data.inputs.tobytes()).hexdigest()
    assert found == "47af8b02cfcfb6cdf3dbbd1969ad7f1b70f4413f6f80f437b020ee4e5bc8304a"


@pytest.mark.data
def test_class_names(data_folder: Path) -> None:
    for name, file in (
        ("cifar10", "cifar-10-batches-bin/batches.meta.txt"),
        ("cifar100", "cifar-100-binary/fine_label_names.txt"),
        ("cifar100-coarse", "cifar-100-binary/coarse_label_names.txt"),
    ):
        data = load(name, split="test", root=data_folder)
        assert list(data.class_names) == (data_folder / file).read_text().split()


@pytest.fixture
def small(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    publish(monkeypatch, "cifar10")
    folder = tmp_path / PUBLISHED["cifar10"].folder
    folder.mkdir()
    for file, content in contents("cifar10").items():
        (folder / file).write_bytes(content)
    return tmp_path


def test_missing(tmp_path: Path, small: Path) -> None:
    (small / "cifar-10-batches-bin" / "data_batch_4.bin").unlink()
    assert [path.name for path in missing_files("cifar10", small)] == ["data_batch_4.bin"]
    with pytest.raises(FileNotFoundError, match=r"\(data_batch_4\.bin is missing\): `tolerant do"):
        load("cifar10", root=small)


@pytest.mark.parametrize(
    ("keep", "message"),
    [
        (slice(0, -1), "is incomplete: 61459 bytes"),
        (slice(0, -3073), "is damaged"),
        (slice(0, 0), "incomplete"),
    ],
)
def test_truncated(keep: slice, message: str, small: Path) -> None:
    path = small / "cifar-10-batches-bin" / "data_batch_2.bin"
    path.write_bytes(path.read_bytes()[keep])
    with pytest.raises(ValueError, match=message):
        load("cifar10", root=small)


def test_one_wrong_bit(small: Path) -> None:
    path = small / "cifar-10-batches-bin" / "data_batch_5.bin"
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)
    with pytest.raises(ValueError, match=r"data_batch_5\.bin is damaged.*tolerant download cifar10"):
        load("cifar10", root=small)
    load("cifar10", split="test", root=small)


def test_human_labels_of_other_images(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The rows of CIFAR-N are those of CIFAR: if the clean labels differ, nothing lines up."""
    publish(monkeypatch, "cifar10")
    publish(monkeypatch, "cifar10n")
    from data_makers import human_labels, md5

    (tmp_path / "cifar-10-batches-bin").mkdir()
    for file, content in contents("cifar10").items():
        (tmp_path / "cifar-10-batches-bin" / file).write_bytes(content)
    labels = human_labels("cifar10n")
    labels["clean"] = labels["clean"][::-1].copy()
    (tmp_path / "cifar-n").mkdir()
    np.savez(tmp_path / "cifar-n" / "cifar10n_labels.npz", **labels)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"cifar10n_labels\.npz is damaged"):
        load("cifar10n-worse", root=tmp_path)
    whole = b"".join(labels[key].tobytes() for key in sorted(labels))
    monkeypatch.setitem(PUBLISHED["cifar10n"].files, "cifar10n_labels.npz", md5(whole))  # type: ignore[misc]
    with pytest.raises(ValueError, match="not those of the images, row by row"):
        load("cifar10n-worse", root=tmp_path)
