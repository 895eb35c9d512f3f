"""Writing a run's model for torch or ONNX, compared with the run's own predictions before it counts."""

from __future__ import annotations

import json
import logging
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from tolerant.extras import extra
from tolerant.files import write_atomic
from tolerant.own_data.exported.card import model_card
from tolerant.own_data.exported.program import Program, program_of
from tolerant.own_data.run_folder import SavedRun

CLOSE = 1e-4  # how far a probability may be off the run's own
_ROWS = 64  # of the training data, that are compared
_PART = ".part-"
METADATA = "tolerant.json"  # in a torch file; in an ONNX file its keys are in the metadata


def write_model(run: SavedRun, to: str, folder: Path) -> tuple[Path, float]:
    """`model.pt2` or `model.onnx`, and `README.md`, in ``folder``; the file, and how far it was off the run.

    ``to``: "torch" or "onnx". Nothing is left behind if it does not predict what the run does.
    """
    program, example = program_of(run)
    dataset = run.load_rows()
    rows = dataset.subset(np.arange(min(len(dataset), _ROWS)))
    inputs = torch.from_numpy(np.ascontiguousarray(rows.inputs[np.arange(len(rows))]))
    wanted = run.probs(run.encoder.trainable(rows), device="cpu")
    path = folder / {"torch": "model.pt2", "onnx": "model.onnx"}[to]
    part = path.with_name(f"{_PART}{path.name}")
    with warnings.catch_warnings(action="ignore"):  # of the exporters, about their own insides
        predict = (_write_torch if to == "torch" else _write_onnx)(program, example, part, metadata(run))
        found = predict(inputs)
    off = float(np.abs(found - wanted).max())
    if not off <= CLOSE:
        part.unlink()
        raise ValueError(
            f"the exported model is {off:.2g} off the run's predictions, more than {CLOSE}, and is not kept. "
            "Try the other format, or use tolerant predict."
        )
    part.replace(path)
    write_atomic(folder / "README.md", model_card(run, dataset, path.name))
    return path, off


def is_part(path: Path) -> bool:
    """Whether an export that was killed left it; the next one replaces it."""
    return path.name.startswith(_PART)


def metadata(run: SavedRun) -> dict[str, str]:
    encoder = run.encoder
    columns = () if encoder.encoder is None else encoder.encoder.feature_names
    return {
        "class_names": json.dumps(encoder.class_names),
        "input": json.dumps({"kind": encoder.kind, "shape": encoder.picture_shape or encoder.shape}),
        "columns": json.dumps(columns),
        "tolerant": run.spec["version"],
    }


def _write_torch(
    program: Program, example: Tensor, path: Path, about: dict[str, str]
) -> Callable[[Tensor], np.ndarray]:
    exported = torch.export.export(program, (example,), dynamic_shapes=({0: torch.export.Dim("rows")},))
    torch.export.save(exported, path, extra_files={METADATA: json.dumps(about)})
    loaded = torch.export.load(path).module()
    return lambda rows: loaded(rows).detach().numpy()


def _write_onnx(
    program: Program, example: Tensor, path: Path, about: dict[str, str]
) -> Callable[[Tensor], np.ndarray]:
    extra("onnxscript", install="onnx")
    runtime = extra("onnxruntime", install="onnx")
    logging.getLogger("torch.onnx").setLevel(logging.ERROR)
    made: Any = torch.onnx.export(
        program,
        (example,),
        input_names=["rows"],
        output_names=["probabilities"],
        dynamic_shapes=({0: torch.export.Dim("rows")},),
        dynamo=True,
        verbose=False,
    )
    made.model.metadata_props.update(about)
    made.save(str(path), external_data=False)
    session = runtime.InferenceSession(path.read_bytes(), providers=["CPUExecutionProvider"])
    return lambda rows: np.asarray(session.run(None, {"rows": rows.numpy()})[0])
