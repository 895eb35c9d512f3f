"""Features computed by Ray Data on a real Ray of two workers: those of this process, in the same cache."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys

import numpy as np
import pytest
from typer.testing import CliRunner

from tolerant.cli import make_app
from tolerant.data import features
from tolerant.data.features.cache import FeatureCache

# Ray in a process of its own: it warns of its own doings, and warnings are errors here.
ENV = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONWARNINGS": "ignore", "RAY_USAGE_STATS_ENABLED": "0"}
ENV.pop("RAY_ADDRESS", None)
ENV["RAY_OVERRIDE_RESOURCES"] = json.dumps({"CPU": 2})
TEXTS = [f"{'a red car' if number % 2 else 'two grey cats'} {number}" for number in range(70)]

needs_ray = pytest.mark.skipif(importlib.util.find_spec("ray") is None, reason="needs ray")


def tolerant(*words: object, **env: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "tolerant", *map(str, words)]
    return subprocess.run(command, env=ENV | env, capture_output=True, text=True, timeout=600)


@needs_ray
def test_the_cache_is_that_of_this_process(tmp_path, monkeypatch):
    lines = [f"{text},{number % 2}" for number, text in enumerate(TEXTS)]
    (tmp_path / "texts.csv").write_text("\n".join(["text,label", *lines]))
    train = ("train", tmp_path / "texts.csv", "--features", "wordllama", "--epochs", 1, "--folds", 0)
    done = tolerant(
        *train, "--out", tmp_path / "run", "--engine", "ray", TOLERANT_CACHE=str(tmp_path / "ray")
    )
    assert done.returncode == 0, done.stderr
    extractor = features.load_extractor("wordllama", "text")
    monkeypatch.setenv("TOLERANT_CACHE", str(tmp_path / "here"))
    here = features.extract(np.array(TEXTS, object), extractor)
    cache = FeatureCache(tmp_path / "ray", extractor.identity, views=1, dim=256)
    places = cache.find(here.digests)
    assert (places >= 0).all()
    np.testing.assert_array_equal(cache.rows()[places], here.views(np.arange(len(here))))


def test_what_has_no_features_is_refused(tmp_path):
    (tmp_path / "table.csv").write_text("a,label\n" + "\n".join(f"{n},{n % 2}" for n in range(60)))
    train = ["train", str(tmp_path / "table.csv"), "--out", str(tmp_path / "run")]
    done = CliRunner().invoke(make_app(), [*train, "--engine", "ray"])
    assert "these rows are trained on without" in str(done.exception)
    done = CliRunner().invoke(make_app(), [*train, "--address", "x"])
    assert done.exit_code == 2
    assert "add --engine ray" in " ".join(done.output.split())
