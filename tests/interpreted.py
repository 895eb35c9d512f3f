"""Triton decides at import whether it interprets, so a run on the CPU is a process of its own."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

INTERPRETED = os.environ.get("TRITON_INTERPRET") == "1"
DEVICE = "cpu" if INTERPRETED else "cuda"
on_device = pytest.mark.skipif(False, reason="") if INTERPRETED else pytest.mark.gpu
from_outside = pytest.mark.skipif(INTERPRETED, reason="this is the interpreter's run")


def run_interpreted(file: str, *options: str) -> None:
    """The tests of a file, in Triton's interpreter."""
    # Before 3.8 its maximum hands NaN on, where a GPU's takes the other operand.
    pytest.importorskip("triton", minversion="3.8")
    run = subprocess.run(
        [sys.executable, "-m", "pytest", file, *options, "-q", "-p", "no:cacheprovider"],
        env={**os.environ, "TRITON_INTERPRET": "1", "CUDA_VISIBLE_DEVICES": ""},
        cwd=Path(__file__).parent.parent,
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode == 0, run.stdout[-4000:] + run.stderr[-2000:]
    assert " passed" in run.stdout
