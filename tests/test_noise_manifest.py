"""Manifests: what is read back is what was written, or one clear sentence."""

from __future__ import annotations

import json
import random
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from tolerant.noise import Manifest, corrupt, label_digest, uniform


@pytest.fixture
def saved(tmp_path: Path) -> tuple[Path, Manifest, np.ndarray]:
    result = corrupt(np.arange(500) % 10, uniform(10, 0.4), seed=12, kind="uniform", rate=0.4)
    path = tmp_path / "noisy.manifest.json"
    result.manifest.save(path)
    return path, result.manifest, result.given_labels


def test_round_trip(saved) -> None:
    path, manifest, labels = saved
    loaded = Manifest.load(path)
    assert loaded == manifest
    loaded.verify(labels)
    loaded.verify(labels.astype(np.uint8))  # the digest is of the numbers, not of how they are stored
    loaded.verify(labels.tolist())


def test_a_matrix_has_no_rate(tmp_path: Path) -> None:
    manifest = corrupt([0, 1], np.eye(2), seed=0).manifest
    manifest.save(tmp_path / "m.json")
    assert Manifest.load(tmp_path / "m.json") == manifest
    assert manifest.rate is None


def test_other_labels_are_noticed(saved) -> None:
    _, manifest, labels = saved
    changed = labels.copy()
    changed[17] = (changed[17] + 1) % 10
    with pytest.raises(ValueError, match=r"not the labels of the manifest \(uniform, rate 0.4, seed"):
        manifest.verify(changed)
    with pytest.raises(ValueError, match=r"for 500 rows; got an array of shape \(499,\)"):
        manifest.verify(labels[:-1])
    with pytest.raises(ValueError, match=r"shape \(500, 1\)"):
        manifest.verify(labels[:, None])
    with pytest.raises(ValueError, match="whole numbers; got dtype float64"):
        manifest.verify(labels.astype(float))


def test_mutated_bytes_give_the_right_data_or_one_sentence(saved) -> None:
    path, manifest, _ = saved
    whole, draw = path.read_bytes(), random.Random(0)
    refused = 0
    for _ in range(1000):
        data = bytearray(whole)
        for _ in range(draw.choice((1, 1, 2, 5))):
            at = draw.randrange(len(data)) if data else 0
            match draw.randrange(5):
                case 0:
                    del data[at:]
                case 1:
                    del data[at : at + draw.randrange(1, 30)]
                case 2 if data:
                    data[at] ^= 1 << draw.randrange(8)
                case 3:
                    data[at:at] = bytes(draw.randrange(256) for _ in range(draw.randrange(1, 9)))
                case _:
                    data[at:at] = data[at : at + draw.randrange(1, 60)]
        path.write_bytes(bytes(data))
        try:
            sentence, loaded = "", Manifest.load(path)
        except ValueError as error:
            sentence = str(error)
        if sentence:
            refused += 1
            assert str(path) in sentence
            assert "\n" not in sentence
        else:
            assert loaded == manifest
    assert refused > 900


FIELDS = [
    "kind", "rate", "seed", "generator", "num_rows", "num_classes", "realised_noise_rate", "sha256",
    "manifest_sha256",
]  # fmt: skip
VALUES = [None, "", "x", -1, 0, 1, 0.5, 7, 1e999, float("nan"), True, [], {}, [1], 10**30]


@pytest.mark.parametrize("field", FIELDS)
def test_a_changed_field_is_refused(saved, field: str) -> None:
    path, _, _ = saved
    whole = json.loads(path.read_text())
    assert set(whole) == set(FIELDS)
    for value in VALUES:
        path.write_text(json.dumps(whole | {field: value}))
        with pytest.raises(ValueError, match="manifest") as caught:
            Manifest.load(path)
        assert str(path) in str(caught.value)
    del whole[field]
    path.write_text(json.dumps(whole))
    with pytest.raises(ValueError, match="not a noise manifest: it must hold kind, rate, seed"):
        Manifest.load(path)


@pytest.mark.parametrize("text", ["", "[]", "null", "3", '"kind"', "{}", "[" * 100_000, "\x00"])
def test_another_file_is_refused(tmp_path: Path, text: str) -> None:
    path = tmp_path / "other.json"
    path.write_text(text)
    with pytest.raises(ValueError, match=r"other\.json is not a"):
        Manifest.load(path)


def test_a_missing_file_says_so(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"nowhere\.json"):
        Manifest.load(tmp_path / "nowhere.json")


def test_a_hand_edit_is_noticed(saved) -> None:
    path, manifest, _ = saved
    path.write_text(path.read_text().replace('"seed": 12', '"seed": 13'))
    with pytest.raises(ValueError, match="was changed after it was written"):
        Manifest.load(path)
    replace(manifest, seed=13).save(path)
    assert Manifest.load(path).seed == 13


def test_digest_is_of_little_endian_int64() -> None:
    big_endian = np.array([0, 1, 258], dtype=">i4")
    assert label_digest(big_endian) == label_digest([0, 1, 258])
    assert label_digest([0, 1, 258])[:16] == "f4c293741cd82d72"
