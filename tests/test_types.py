"""The package's types are right, and say the arguments of every loss: a wrong call is refused."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tolerant.losses import REGISTRY

ROOT = Path(__file__).parents[1]

HEAD = """
from typing import Annotated, Unpack

import torch
from torch import Tensor

import tolerant
from tolerant import functional
from tolerant.losses import Common, Domain

x, y = torch.zeros(2, 3), torch.zeros(2, dtype=torch.long)


class Own(tolerant.PhiLoss):
    epsilon: float

    def __init__(self, *, epsilon: Annotated[float, Domain(0)] = 1.0, **common: Unpack[Common]) -> None:
        super().__init__(**common)

    def phi(self, log_p_y: Tensor) -> Tensor:
        return self.epsilon * log_p_y

    def weight(self, log_p_y: Tensor) -> Tensor:
        return torch.full_like(log_p_y, -self.epsilon)

"""
COMMON = {"weight": "x", "ignore_index": "-1", "reduction": '"sum"'}
# What a call is made with, beside its own numbers, which are in the registry; and numbers of the others.
CLASSES = {f"tolerant.{loss.__name__}": loss.defaults for loss in REGISTRY.values()}
CLASSES |= {"Own": {"epsilon": 2.0}, "tolerant.BinaryLqLoss": {"q": 0.7}, "tolerant.LinearLqLoss": {"q": 0.7}}
FUNCTIONS = {f"functional.{name.replace('-', '_')}_loss": loss.defaults for name, loss in REGISTRY.items()}
FUNCTIONS |= {"functional.binary_lq_loss": {"q": 0.7}, "functional.linear_lq_loss": {"q": 0.7}}


def calls() -> tuple[list[str], list[str]]:
    """Lines that are right, and lines that are wrong."""
    right, wrong = ["functional.log_p_y(x, y)", "functional.gjs_loss([x, x], y)"], []
    for called, numbers in {**CLASSES, **FUNCTIONS}.items():
        given = {"functional.linear_lq_loss": "x, x, y, "}.get(
            called, "x, y, " if "functional" in called else ""
        )
        common = {"ignore_index": "-1", "reduction": '"sum"'} if "inear" in called else COMMON
        own = {name: repr(value) for name, value in numbers.items()}
        everything = ", ".join(f"{name}={value}" for name, value in {**own, **common}.items())
        right += [f"{called}({given.rstrip(', ')})", f"{called}({given}{everything})"]
        wrong += [
            f"{called}({given}qq=0.7)",
            f"{called}({given}reduction=3)",
            f'{called}({given}impll="auto")',
        ]
        wrong += [f'{called}({given}{name}="x")' for name in numbers]
        wrong += [] if "functional" in called else [f"{called}(0.7)"]
    right.append("functional.lq_loss(x, y, sample_weight=x, q=0.7)")
    right.append('functional.lq_from_log_prob(x, q=0.7, k=0.1, weight=x, ignore=x, reduction="sum")')
    wrong += ["functional.lq_from_log_prob(x, 0.7)", "functional.lq_from_log_prob(x, qq=0.7)"]
    wrong += ["functional.lq_loss([x, x], y)", "functional.lq_loss(x, y, x, 0.7)", "functional.log_p_y(x)"]
    wrong += ["tolerant.LqqLoss()", "functional.lqq_loss(x, y)"]
    return right, wrong


def test_mypy_finds_no_fault_in_the_package_and_tells_right_calls_from_wrong_ones(tmp_path):
    """As `make types`, and in one go: to read torch takes mypy longer than all else."""
    pytest.importorskip("mypy")
    right, wrong = calls()
    file = tmp_path / "calls.py"
    file.write_text(HEAD + "\n".join(right + wrong) + "\n")
    found = subprocess.run(
        [sys.executable, "-m", "mypy", "src/tolerant", str(file)],
        cwd=ROOT,
        env={**os.environ, "MYPYPATH": "src"},
        capture_output=True,
        text=True,
        check=False,
    ).stdout
    lines = file.read_text().splitlines()
    errors = [line for line in found.splitlines() if ": error:" in line]
    numbers = [re.search(r"calls\.py:(\d+): error:", line) for line in errors]
    refused = {lines[int(number[1]) - 1] for number in numbers if number}
    assert [line for line, number in zip(errors, numbers, strict=True) if not number] == []
    assert refused == set(wrong), found[-2000:]
