"""Fixtures shared by all tests."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

LONGEST = ("in_the_interpreter", "mypy_finds", "past_a_killed_worker", "in_a_ray_of_ones_own")


@pytest.fixture(scope="session", autouse=True)
def power_that_stays_on() -> Iterator[None]:
    """No waiting for the disk, 5 to 10 ms each time: a process that is killed loses nothing by it."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", lambda handle: None)
        yield


@pytest.fixture(scope="session")
def data_folder() -> Path:
    """The folder with the published data sets, or a visible skip."""
    root = os.environ.get("TOLERANT_DATA")
    if root is None or not (Path(root) / "cifar-10-batches-bin").is_dir():
        pytest.skip("needs the published data sets: set TOLERANT_DATA to their folder")
    return Path(root)


@pytest.fixture(scope="session")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with data.csv and the run trained on it; tests that change something take a copy."""
    from own_data_helpers import tolerant, write_table

    folder = tmp_path_factory.mktemp("table")
    write_table(folder / "data.csv")
    options = ("--id", "key", "--epochs", 20, "--q", 0.7, "--folds", 3)
    tolerant("train", folder / "data.csv", "--out", folder / "run", *options)
    return folder


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    # The longest first: begun last, one of them would keep one core busy and the others idle.
    items.sort(key=lambda item: not any(word in item.name for word in LONGEST))
    if torch.cuda.is_available():
        return
    skip = pytest.mark.skip(reason="needs a CUDA device")
    for item in items:
        if "gpu" in item.keywords:
            item.add_marker(skip)
