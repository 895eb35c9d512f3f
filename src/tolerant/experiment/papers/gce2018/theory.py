"""The paper's theory in numbers: its bounds, and where its statements about them hold."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tolerant import theory
from tolerant.markdown import markdown_table

CLASSES = (2, 4, 10, 100)
QS = (0.0, 0.2, 0.4, 0.6, 0.7, 0.8, 1.0)
KS = (0.2, 0.3, 0.5)
RATES = (0.2, 0.4, 0.6, 0.8)


def tables() -> str:
    """Markdown: lemma 2, theorem 1 for plain and truncated L_q, and eq. 11 against the text."""
    return "\n\n".join([_sums(), _theorem1(), _truncation()])


def _sums() -> str:
    body = []
    for q in QS:
        bounds = [theory.sum_bounds(q, c) for c in CLASSES]
        body.append([f"{q:g}", *(f"{each.lower:.3f} to {each.upper:.3f}" for each in bounds)])
    return _section(
        "Lemma 2: the sum of L_q over all classes lies between", ["q", *(f"c = {c}" for c in CLASSES)], body
    )


def _theorem1() -> str:
    body = []
    for rate in RATES:
        plain = [theory.uniform_noise_bounds(q, 10, rate).clean for q in QS]
        cut = theory.uniform_noise_bounds(0.7, 10, rate, k=0.5).clean
        body.append([f"{rate:g}", *(f"{value:.3f}" for value in plain), f"{cut:.3f}"])
    return _section(
        "Theorem 1: R(f*) - R(f_hat) is at least (c = 10, wrong labels spread over the others)",
        ["noise rate", *(f"q = {q:g}" for q in QS), "q = 0.7, k = 0.5"],
        body,
    )


def _truncation() -> str:
    limits = np.asarray(theory.truncation_limit(np.array(KS), np.array(CLASSES)[:, None]))
    body = [[f"{c}", *(f"{limit:.3f}" for limit in line)] for c, line in zip(CLASSES, limits, strict=True)]
    text = _section(
        "Eq. 11: truncation narrows the bounds for q below", ["c", *(f"k = {k:g}" for k in KS)], body
    )
    return (
        f"{text}\n\n"
        'The paper says "for all q and c" when k >= 0.3, and "for all q and c >= 10" when '
        "k >= 0.2. By its own formulas neither holds: every entry is below 1. Its choice, q = 0.7 "
        "and k = 0.5, does narrow them from three classes on; as a share of the largest loss, which "
        "truncation lowers too, only from eleven on."
    )


def _section(title: str, head: Sequence[str], body: Sequence[Sequence[str]]) -> str:
    return f"{title}:\n\n" + markdown_table(head, body, "r")
