"""An extractor of one's own: a program that `torch.export.save` wrote, if it holds no pickle."""

from __future__ import annotations

import io
import json
import zipfile
from pathlib import Path
from typing import Any

import torch

from tolerant.data.features.extractor import Extractor, Identity, Kind, weights_digest
from tolerant.data.features.picture_networks import Frame, PictureEncoder
from tolerant.data.read_errors import READ_ERRORS, reason


def load_own_file(name: str, path: str, kind: Kind, device: torch.device) -> Extractor:
    """From a .pt2 file: float32 pictures (n, 3, side, side) of 0 to 1 to vectors (n, D), for any n.

    The side is that of the example it was exported with; normalisation belongs into the program.
    """
    if kind != "image":
        raise ValueError(
            f"{name} takes pictures; for texts use hf:PATH, with a folder that has a tokenizer too"
        )
    file = Path(path).expanduser()
    if not file.is_file():
        raise FileNotFoundError(f"{name}: there is no file {file}")
    data = file.read_bytes()
    _refuse_pickles(name, data)
    try:
        program = torch.export.load(io.BytesIO(data))
        (example,) = program.example_inputs[0]
        batch, channels, side, width = example.shape
    except READ_ERRORS as error:
        raise ValueError(
            f"{name} must be a program of one picture tensor (n, 3, side, side), as torch.export.save writes "
            f"it: {reason(error)}"
        ) from error
    if channels != 3 or side != width:
        raise ValueError(f"{name} must take (n, 3, side, side); its example is {tuple(example.shape)}")
    net = program.module()
    net.to(device)

    def run(pixels: torch.Tensor) -> Any:
        try:
            return net(pixels.contiguous())
        except (AssertionError, RuntimeError, ValueError) as error:
            if len(pixels) == batch:
                raise
            raise ValueError(
                f"{name} was exported for {batch} pictures at a time, and refuses {len(pixels)}: "
                f"{reason(error)}. Export it with dynamic_shapes, so that the first dimension is free."
            ) from error

    encoder = PictureEncoder(run, Frame(size=int(side), mean=(0.0,) * 3, std=(1.0,) * 3), device)
    digest = weights_digest({**program.state_dict, "graph": _as_tensor(str(program.graph))})
    return Extractor(
        Identity(name, "torch.export", digest, encoder.use), "image", encoder, PictureEncoder.views
    )


def _as_tensor(text: str) -> torch.Tensor:
    return torch.frombuffer(bytearray(text.encode()), dtype=torch.uint8)


def _refuse_pickles(name: str, data: bytes) -> None:
    """torch unpickles what an archive marks so, and example inputs that are more than tensors: not here."""
    way_out = "Save it with torch.export.save from a program whose weights and inputs are plain tensors."
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            names = archive.namelist()
            if not any("/models/" in f"/{entry}" and entry.endswith(".json") for entry in names):
                raise ValueError("it holds no program")
            for entry in names:
                if entry.endswith(".json") and "use_pickle" in (text := archive.read(entry).decode()):
                    config = json.loads(text).get("config", {})
                    pickled = [key for key, value in config.items() if value.get("use_pickle")]
                    if pickled:
                        raise ValueError(f"{pickled[0]} is stored as a pickle, which can run any code")
                if "/sample_inputs/" in f"/{entry}":
                    torch.load(io.BytesIO(archive.read(entry)), weights_only=True)
    except Exception as error:  # torch.load of what is no plain tensor, or a file that is no archive
        raise ValueError(f"{name} is refused: {reason(error)}. {way_out}") from error
