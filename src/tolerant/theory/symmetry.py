r"""Symmetric losses (eq. 3 of Zhang & Sabuncu 2018): which ones are, and which noise they tolerate."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike

from tolerant.checks import check_transition

if TYPE_CHECKING:
    from torch import Tensor

_SPREAD = 1e-6  # of sums that count as constant, relative to their mean
_ROUNDING = 1e-12  # a diagonal ahead by less, as 1 - 2/3 is of 1/3, is not ahead


def symmetry_constant(
    loss_fn: Callable[[Tensor, Tensor], Tensor],
    num_classes: int,
    *,
    num_samples: int = 1000,
    seed: int = 0,
) -> float | None:
    r"""C of eq. 3, :math:`\sum_j L(f(x), j) = C` for all predictions, or None if there is none.

    ``loss_fn(logits [n, c], labels [n])`` gives one value per row (``reduction="none"``). The sums are
    compared over random float64 logits of many scales, the uniform prediction and near-one-hot ones.
    They count as constant if they are within a millionth of their mean.

    >>> import torch
    >>> def mae(logits, labels):
    ...     return 2 - 2 * logits.softmax(-1).gather(1, labels[:, None])[:, 0]
    >>> round(symmetry_constant(mae, num_classes=10), 6)
    18.0
    """
    import torch

    generator = torch.Generator().manual_seed(seed)
    logits = torch.randn(num_samples, num_classes, generator=generator, dtype=torch.float64)
    logits *= torch.logspace(-2, 1.5, num_samples, dtype=torch.float64)[:, None]
    corners = 30 * torch.eye(num_classes, dtype=torch.float64)
    logits = torch.cat([logits, corners, torch.zeros_like(corners[:1])])
    total = torch.zeros(len(logits), dtype=torch.float64)
    for label in range(num_classes):
        values = loss_fn(logits, torch.full((len(logits),), label)).detach()
        if values.shape != total.shape:
            raise ValueError(
                f"loss_fn must give one value per row, shape {tuple(total.shape)}; got "
                f'{tuple(values.shape)}. Make the loss with reduction="none".'
            )
        total += values
    mean = float(total.mean())
    spread = float((total - mean).abs().max())
    return mean if spread <= _SPREAD * abs(mean) else None  # False for NaN and infinity


def is_symmetric(loss_fn: Callable[[Tensor, Tensor], Tensor], num_classes: int) -> bool:
    """Whether the loss is symmetric (eq. 3), as far as :func:`symmetry_constant` can see.

    >>> from torch.nn import CrossEntropyLoss
    >>> is_symmetric(CrossEntropyLoss(reduction="none"), num_classes=10)
    False
    """
    return symmetry_constant(loss_fn, num_classes) is not None


def noise_is_tolerable(noise: ArrayLike, num_classes: ArrayLike | None = None) -> np.ndarray | bool:
    r"""Whether a symmetric loss tolerates this noise (Ghosh et al., as cited in section 3.1).

    A rate with ``num_classes``: uniform over the other classes, :math:`\eta < 1 - 1/c`. A transition
    matrix: class-dependent, :math:`\eta_{ij} < 1 - \eta_i` for all j != i; for a uniform matrix that
    is the same condition. Notes on the paper's sentence "if R(f*) = 0, then L is also noise tolerant
    under class dependent noise":

    - it needs the condition on the matrix, which appears in theorem 2 only;
    - it needs every loss to be at most C / (c - 1), C the symmetry constant (true of MAE and L_1).
      :math:`L(p, j) = 1 - p_j + 0.9 (p_{j+1} - p_{j-1})`, three classes in a circle, is symmetric and
      0 only at the label, yet with the rows of T (0.5, 0.1, 0.4), rotated, the noisy risk is 0.77 at the
      true label and 0.24 one step before it.

    >>> print(noise_is_tolerable([0.4, 0.5], num_classes=2))
    [ True False]
    >>> print(noise_is_tolerable([[0.6, 0.4], [0.5, 0.5]]))
    False
    """
    if num_classes is not None:
        rate = np.asarray(noise, dtype=np.float64)
        if not ((rate >= 0) & (rate <= 1)).all():
            raise ValueError(f"noise must be a rate in [0, 1]; got {noise!r}.")
        c = check_classes(num_classes)
        below = rate * c < c - 1  # exact at 2 / 3 of 3 classes, which is less than 1 - 1 / 3 by rounding
        return below if np.ndim(below) else bool(below)
    if np.ndim(noise) == 0:
        raise ValueError(f"noise must be a matrix, or a rate with num_classes; got {noise!r} alone.")
    matrix = check_transition(noise)
    others = np.where(np.eye(len(matrix), dtype=bool), -np.inf, matrix)
    return bool((np.diag(matrix) - others.max(axis=1) > _ROUNDING).all())


def check_classes(num_classes: ArrayLike) -> np.ndarray:
    values = np.asarray(num_classes, dtype=np.float64)
    if not ((values >= 2) & (values == np.floor(values))).all():
        raise ValueError(f"num_classes must be whole and at least 2; got {num_classes!r}.")
    return values
