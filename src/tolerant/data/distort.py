"""Strong augmentation: turn, shear, zoom, shift, recolour and cover a part of each picture.

Like `augment` a pure function of pictures and draws, without a look at a value, so that it runs inside a CUDA
graph. Pictures are interpolated, so devices agree to rounding, not to the bit.
"""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor

_APPLIED = 0.7  # of pictures, for each of turn, zoom, shear and colour
_TURN = math.radians(30)
_ZOOM = 0.2
_SHEAR = 0.3
_SHIFT = 0.25  # of half a side: 4 of 32 pixels
_BRIGHTNESS, _CONTRAST, _SATURATION = 0.5, 0.4, 0.5
_COVERED = 0.25  # of a side: 8 of 32 pixels


def draw_distortion(num_images: int, generator: torch.Generator) -> dict[str, Tensor]:
    """What `distort` takes beside the pictures, a row for each of them."""

    def uniform(*shape: int) -> Tensor:
        return 2 * torch.rand(num_images, *shape, generator=generator) - 1

    applied = (torch.rand(num_images, 4, generator=generator) < _APPLIED).float()
    turn = _TURN * uniform() * applied[:, 0]
    zoom = 1 + _ZOOM * uniform() * applied[:, 1]
    shear = _SHEAR * uniform() * applied[:, 2]
    shift = _SHIFT * uniform(2)
    mirror = torch.randint(2, (num_images,), generator=generator) * 2.0 - 1
    cos, sin = turn.cos() * zoom, turn.sin() * zoom
    across = torch.stack([mirror * cos, shear * cos - sin, shift[:, 0]], 1)
    down = torch.stack([mirror * sin, shear * sin + cos, shift[:, 1]], 1)
    limits = torch.tensor([_BRIGHTNESS, _CONTRAST, _SATURATION])
    return {
        "affine": torch.stack([across, down], 1),
        "colour": torch.tensor([0.0, 1.0, 1.0]) + limits * uniform(3) * applied[:, 3:],
        "cover": torch.rand(num_images, 2, generator=generator),
    }


def distort(images: Tensor, *, affine: Tensor, colour: Tensor, cover: Tensor) -> Tensor:
    """Pictures (B, C, H, W), centred at 0, distorted.

    affine: (B, 2, 3), as `torch.nn.functional.affine_grid` takes it. colour: (B, 3), brightness to be added,
    in deviations of the picture, and factors of contrast and saturation. cover: (B, 2) in [0, 1), the middle
    of the square that becomes 0.
    """
    grid = F.affine_grid(affine, list(images.shape), align_corners=False)
    x = F.grid_sample(images, grid, padding_mode="reflection", align_corners=False)
    brightness, contrast, saturation = (each.view(-1, 1, 1, 1) for each in colour.unbind(1))
    grey = x.mean(1, keepdim=True)
    variance, mean = torch.var_mean(x, (1, 2, 3), keepdim=True, correction=0)
    x = (grey + saturation * (x - grey) - mean) * contrast + mean + brightness * variance.sqrt()
    return x.masked_fill(_covered(cover, x.shape[2], x.shape[3]), 0.0)


def _covered(middle: Tensor, height: int, width: int) -> Tensor:
    """bool (B, 1, H, W)."""
    inside = []
    for place, side in zip(middle.unbind(1), (height, width), strict=True):
        pixels = torch.arange(side, device=middle.device) + 0.5
        inside.append((pixels - (place * side)[:, None]).abs() <= _COVERED * side / 2)
    return (inside[0][:, :, None] & inside[1][:, None, :])[:, None]
