"""Flip, shift and normalise a batch of images in one step.

The step is a pure function of the images and the draws: no random state, no shapes that depend on
data and no look at a value, so it runs inside a CUDA graph, and CPU and GPU give the same bits.
(torch.compile may fuse the product and the difference into one rounding: then the last bit differs.)
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import pad

PADDING = 4


def draw(num_images: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """Flips, bool (N,), and shifts in 0..8, int64 (N, 2), for `augment`, where the generator is.

    >>> flip, shift = draw(3, torch.Generator().manual_seed(0))
    >>> flip.tolist(), shift.tolist()
    ([False, True, True], [[6, 7], [6, 7], [1, 1]])
    """
    where = generator.device
    flip = torch.randint(2, (num_images,), generator=generator, device=where).bool()
    shift = torch.randint(2 * PADDING + 1, (num_images, 2), generator=generator, device=where)
    return flip, shift


def augment(
    images: Tensor,
    *,
    mean: Tensor,
    flip: Tensor | None = None,
    shift: Tensor | None = None,
    scale: float = 1 / 255,
    dtype: torch.dtype = torch.float32,
) -> Tensor:
    """images * scale - mean, 4 zeros around that, the window at `shift`, its mirror image on `flip`.

    images: uint8 (B, H, W, C). mean: float32 (H, W, C), in the units of the result.
    shift: (B, 2) in 0..8, rows then columns; 4 is where nothing moves. None: none.
    flip: bool (B,). None: none.
    Returns (B, C, H, W) in channels_last memory order.

    >>> image = torch.arange(4, dtype=torch.uint8).view(1, 2, 2, 1)
    >>> augment(image, mean=torch.zeros(2, 2, 1), flip=torch.tensor([True]), scale=1.0).flatten()
    tensor([1., 0., 3., 2.])
    """
    x = (images * scale - mean).to(dtype)
    if flip is not None or shift is not None:
        x = _window(x, flip, shift)
    return x.permute(0, 3, 1, 2)


def _window(x: Tensor, flip: Tensor | None, shift: Tensor | None) -> Tensor:
    batch, height, width, channels = x.shape
    columns = torch.arange(width, device=x.device)
    if flip is not None:
        columns = torch.where(flip[:, None], width - 1 - columns, columns)
    rows = torch.arange(height, device=x.device).expand(batch, height)
    if shift is not None:
        x = pad(x, (0, 0, PADDING, PADDING, PADDING, PADDING))
        rows, columns = rows + shift[:, :1], columns + shift[:, 1:]
    # One gather of pixels by place in the batch: a third of the time of x[image, row, column].
    rows = rows + torch.arange(0, batch * x.shape[1], x.shape[1], device=x.device)[:, None]
    place = (rows * x.shape[2])[:, :, None] + columns[:, None, :]
    return x.view(-1, channels).index_select(0, place.view(-1)).view(batch, height, width, channels)
