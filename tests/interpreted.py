"""Triton decides at import whether it interprets, so a run on the CPU is a process of its own."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

INTERPRETED = os.environ.get("TRITON_INTERPRET") == "1"
DEVICE = "cpu" if INTERPRETED else "cuda"
on_device = pytest.mark.skipif(False, reason="") if INTERPRETED else pytest.mark.gpu
from_outside = pytest.mark.skipif(INTERPRETED, reason="this is the interpreter's run")


def run_interpreted(*files: str) -> None:
    """The tests of these files, in Triton's interpreter."""
    # Before 3.8 its maximum hands NaN on, where a GPU's takes the other operand.
    pytest.importorskip("triton", minversion="3.8")
    tests = Path(__file__).parent
    run = subprocess.run(
        [
            sys.executable,
            "-m",
            "pytest",
            *(str(tests / file) for file in files),
            "-q",
            "-p",
            "no:cacheprovider",
        ],
        env={**os.environ, "TRITON_INTERPRET": "1", "CUDA_VISIBLE_DEVICES": ""},
        cwd=tests.parent,
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode == 0, run.stdout[-4000:] + run.stderr[-2000:]
    assert " passed" in run.stdout


def prepare_once_a_launch() -> None:
    """Have the interpreter remap Triton's language once for a launch, not at each call of a function in it.

    That is most of what it does otherwise. The end of the launch takes the remapping back.
    """
    from triton.runtime import interpreter

    remap: Callable[[Any], Any] | None = getattr(interpreter, "_patch_lang", None)
    if remap is None:  # another Triton: slower
        return
    language = interpreter.tl, interpreter.tl.core
    remapped: dict[tuple[bool, ...], Any] = {}  # by which of the two modules a function sees

    def once(function: Any) -> Any:
        seen = tuple(any(value is module for value in function.__globals__.values()) for module in language)
        if seen not in remapped:
            scope = remapped[seen] = remap(function)
            restore = scope.restore
            scope.restore = lambda: (remapped.clear(), restore())
        return remapped[seen]

    interpreter._patch_lang = once


if INTERPRETED:
    prepare_once_a_launch()
