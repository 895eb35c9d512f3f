"""The published data sets as they are, where they are present."""

from __future__ import annotations

import hashlib
from pathlib import Path

import numpy as np
import pytest
from data_makers import contents, publish

from tolerant.data import CARDS, downloads, load

# Share of wrong labels in percent, as their authors state it.
WRONG = {
    "cifar10n-aggre": 9.03,
    "cifar10n-random1": 17.23,
    "cifar10n-random2": 18.12,
    "cifar10n-random3": 17.64,
    "cifar10n-worse": 40.21,
    "cifar100n": 40.20,
    "cifar100n-coarse": 26.40,
}


def test_the_card_says_what_is_loaded_and_a_set_of_ones_own_may_say_less() -> None:
    for split, rows in (("train", CARDS["digits"].train_rows), ("test", CARDS["digits"].test_rows)):
        data = load("digits", split=split)
        assert data.inputs.shape == (rows, *CARDS["digits"].shape)  # type: ignore[misc]
        assert data.class_names == CARDS["digits"].class_names
    for card in CARDS.values():
        assert None not in (card.train_rows, card.test_rows, card.shape), card.name
        assert card.class_names, card.name
        assert card.downloads or card.note, card.name
    assert {card.name for card in CARDS.values() if card.by_people} == WRONG.keys()


@pytest.mark.data
@pytest.mark.parametrize("split", ["train", "test"])
@pytest.mark.parametrize("name", CARDS)
def test_named(name: str, split: str, data_folder: Path) -> None:
    card = CARDS[name]
    if any(download.missing(data_folder) for download in card.downloads):
        pytest.skip(f"{card.title} is not in TOLERANT_DATA")
    data = load(name, split=split, root=data_folder)
    rows = card.train_rows if split == "train" else card.test_rows
    assert data.inputs.shape == (rows, *card.shape)  # type: ignore[misc]
    assert data.class_names == card.class_names
    assert data.true_labels is not None
    if card.downloads:
        assert set(np.bincount(data.true_labels)) == {len(data) // data.num_classes}
    wrong = WRONG.get(name, 0.0) if split == "train" else 0.0
    assert 100 * data.flipped.mean() == pytest.approx(wrong, abs=0.03)
    assert data.inputs.flags.writeable, "torch warns of arrays that cannot be written"


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
    folder = tmp_path / downloads()["cifar10"].folder
    folder.mkdir()
    for file, content in contents("cifar10").items():
        (folder / file).write_bytes(content)
    return tmp_path


def test_missing(tmp_path: Path, small: Path) -> None:
    (small / "cifar-10-batches-bin" / "data_batch_4.bin").unlink()
    assert [path.name for path in downloads()["cifar10"].missing(small)] == ["data_batch_4.bin"]
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
    monkeypatch.setitem(downloads()["cifar10n"].files, "cifar10n_labels.npz", md5(whole))  # type: ignore[misc]
    with pytest.raises(ValueError, match="not those of the images, row by row"):
        load("cifar10n-worse", root=tmp_path)
