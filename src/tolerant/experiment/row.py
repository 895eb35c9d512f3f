"""What is kept of a finished run: three accuracies, a few numbers, the columns of its epochs."""

from __future__ import annotations

import platform
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import torch

import tolerant
from tolerant.experiment.code_version import commit, source
from tolerant.experiment.spec import TRAINING_VERSION, RunSpec
from tolerant.experiment.store import Row
from tolerant.experiment.training_data import TrainingData
from tolerant.noise import anchor_points
from tolerant.train import TrainResult

# Of the epochs' records; the rest repeats the recipe (lr) or is in the row itself (time).
COLUMNS = (
    "train_loss",
    "validation_loss",
    "validation_accuracy",
    "test_accuracy",
    "p_y_right",
    "p_y_wrong",
    "kept_fraction",
    "prune_precision",
    "prune_recall",
    "relabelled_fraction",
    "label_accuracy",
)


History = dict[str, Any]


def make_row(
    spec: RunSpec,
    data: TrainingData,
    result: TrainResult,
    device: torch.device,
    *,
    wall_s: float,
    share: float,
    side_by_side: int,
) -> tuple[Row, History]:
    """The row to store of a finished run, and its history; ``share`` of the device is what the run had."""
    history: History = dict(epoch_columns(result.history))
    if spec.method == "cce":
        estimate = estimate_transition(result, data, device, spec.anchor_percentile)
        # Whole numbers of 1e-5: half the digits, and 100 classes are 10,000 of them.
        history["estimated_transition_e5"] = np.rint(estimate * 1e5).astype(int).tolist()
    time_s = max(result.time_s, wall_s)  # a resumed run's own clock goes on, while wall_s starts anew
    numbers: dict[str, Any] = {
        **by_rule(result.history),
        "realised_noise_rate": data.realised_noise_rate,
        "kept_fraction": float(result.kept.mean()),
    }
    if spec.needs is not None:
        numbers["transition_from"] = spec.needs.key
    return {
        "key": spec.key,
        "spec": spec.to_dict(),
        "result": numbers,
        "time_s": round(time_s, 2),
        "device_s": round(time_s * share, 2),
        "side_by_side": side_by_side,
        "peak_mem_mib": peak_mem_mib(device),
        "hardware": hardware(device),
        "versions": versions(),
        "commit": commit(),
        "source": source(),
        "finished": datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
    }, history


def estimate_transition(
    result: TrainResult, data: TrainingData, device: torch.device, percentile: float | None = None
) -> np.ndarray:
    """T by anchor points among the training rows, after Patrini et al. 2017.

    Their percentile of 97 skips the surest 3 % of rows as outliers. With more than 33 classes that
    would be whole classes, and they take the surest row itself, as here.
    """
    trained = data.train.subset(result.train_index)
    probs = np.exp(result.predict_log_proba(trained, device=device).astype(np.float64))
    probs /= probs.sum(axis=1, keepdims=True)
    return anchor_points(probs, percentile or (97.0 if trained.num_classes <= 33 else 100.0))


def epoch_columns(history: Sequence[Mapping[str, Any]]) -> dict[str, list[float | None]]:
    """Records as columns; None where an epoch did not measure, no column where none did."""
    table = {name: [record.get(name) for record in history] for name in COLUMNS}
    return {name: column for name, column in table.items() if any(v is not None for v in column)}


def by_rule(history: Sequence[Mapping[str, Any]]) -> dict[str, dict[str, Any]]:
    """Test accuracy at the epoch each rule chooses; of equal epochs the first. Epochs from 0.

    Without validation rows there is no such rule. The best test epoch is one of those that were tested.

    >>> by_rule([{"validation_accuracy": 0.6, "test_accuracy": 0.7},
    ...          {"validation_accuracy": 0.5, "test_accuracy": 0.8}])["noisy_validation"]
    {'epoch': 0, 'test_accuracy': 0.7}
    """
    test = [record.get("test_accuracy") for record in history]
    best = int(np.argmax([-1.0 if accuracy is None else accuracy for accuracy in test]))
    chosen = {"last_epoch": len(history) - 1, "best_test": best}
    if "validation_accuracy" in history[0]:
        validation = [record["validation_accuracy"] for record in history]
        chosen = {"noisy_validation": int(np.argmax(validation)), **chosen}
    return {rule: {"epoch": e, "test_accuracy": test[e]} for rule, e in chosen.items()}


def peak_mem_mib(device: torch.device) -> float:
    """Most memory so far: of the device where there is one, else of this process."""
    if device.type == "cuda":
        return round(torch.cuda.max_memory_allocated(device) / 2**20, 1)
    import resource

    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return round(peak / (2**20 if platform.system() == "Darwin" else 2**10), 1)


def hardware(device: torch.device) -> str:
    """The device's name."""
    if device.type == "cuda":
        return torch.cuda.get_device_name(device)
    return f"{_cpu_name()}, {torch.get_num_threads()} thread(s)"


def versions() -> dict[str, Any]:
    """What the numbers were made with."""
    return {
        "training": TRAINING_VERSION,
        "tolerant": tolerant.__version__,
        "torch": torch.__version__,
        "numpy": np.__version__,
        "python": platform.python_version(),
    }


@cache
def _cpu_name() -> str:
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()
