"""Pictures small enough to live inside the review page."""

from __future__ import annotations

import base64
import io
import warnings
from contextlib import suppress
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tolerant.data.dataset import NoisyDataset
from tolerant.data.readers.pictures import in_threads, open_picture
from tolerant.extras import extra

PIXELS = 160  # a card shows a picture about 200 wide; a 160 WebP takes some 4 kB, so 5,000 take 20 MB
EXAMPLE_PIXELS = 64  # of a picture that only explains another
EXACT = 48  # up to this size no pixel is lost


def thumbnails(dataset: NoisyDataset, index: NDArray[np.int64], side: int = PIXELS) -> list[str]:
    """Data URIs of these rows: from their files, where there are any, since a person needs more than a model.

    One at a time: a memory map or a folder of photographs need not fit in memory.
    """

    def of_row(row: int) -> str:
        if dataset.files is not None:
            with suppress(Exception):  # gone or damaged since it was read
                return _data_uri(open_picture(dataset.files[row], side).convert("RGB"), side)
        if dataset.kind != "image":  # numbers computed from a picture that is damaged now
            return data_uri(np.full((1, 1), 128, np.uint8))
        return data_uri(dataset.inputs[np.array([row])][0], side)

    with warnings.catch_warnings(action="ignore"):  # of Pillow, about odd metadata
        return list(in_threads(of_row, index.tolist(), f"draw {len(index)} pictures"))


def data_uri(picture: NDArray[Any], side: int = PIXELS) -> str:
    """A uint8 picture (H, W) or (H, W, C), C of 1, 3 or 4, as a data URI of at most so many pixels a side."""
    image_module = extra("PIL.Image")
    pixels = np.asarray(picture)
    if pixels.ndim == 3 and pixels.shape[2] == 1:
        pixels = pixels[:, :, 0]
    if pixels.dtype != np.uint8 or pixels.ndim not in (2, 3):
        raise ValueError(
            f"pictures must be uint8 arrays (height, width, channels); "
            f"got {pixels.dtype} of shape {pixels.shape}."
        )
    return _data_uri(image_module.fromarray(np.ascontiguousarray(pixels)), side)


def _data_uri(image: Any, side: int) -> str:
    file = io.BytesIO()
    if max(image.size) <= EXACT:
        image.save(file, "WEBP", lossless=True, method=0)  # the quickest; 32 x 32 in colour take 1.8 kB
    else:
        image.thumbnail((side, side))
        image.save(file, "WEBP", quality=80)
    return f"data:image/webp;base64,{base64.b64encode(file.getvalue()).decode()}"
