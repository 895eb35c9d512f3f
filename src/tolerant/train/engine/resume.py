"""Where a run stands, into its checkpoint folder and back out of it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from tolerant.train.engine.checkpoint import naming_damage
from tolerant.train.engine.job import Record

if TYPE_CHECKING:
    from tolerant.train.engine.loop import Run


def save(run: Run) -> None:
    """Save the run as it stands, at the end of an epoch or after ``run.step`` steps of one."""
    if run.checkpoints is None or run.rows.ranks.rank > 0:
        return
    state, alternation = run.weights.state(), run.alternation
    record: Record = {
        "epoch": run.epoch,
        "step": run.step,
        "loss_sum": run.loss_sum if run.step else 0.0,
        "best_epoch": alternation.best_epoch or 0,
        "time_s": run.time_s,
        "history": run.history,
    }
    if alternation.pruner is not None:
        pruner = alternation.pruner.state_dict()
        state["pruner/p_y"] = pruner.pop("p_y")
        state["pruner/pruned_at"] = torch.from_numpy(run.pruned_at)
        record["pruner"] = pruner
    if run.teacher is not None:
        state |= {f"teacher/{name}": tensor for name, tensor in run.teacher.state_dict().items()}
        state["pruner/pruned_at"] = torch.from_numpy(run.pruned_at)
    run.checkpoints.save(record, state, alternation.best_weights)


def resume(run: Run) -> None:
    """Go on from the run's checkpoint, if there is one."""
    if run.checkpoints is None:
        return
    loaded = run.checkpoints.load()
    found = np.array([-1, -1] if loaded is None else [loaded[0]["epoch"], loaded[0]["step"]])
    if not np.array_equal(found, run.rows.ranks.of_rank_0(found)):
        raise ValueError(
            f"checkpoint must be a folder that all ranks see; {run.checkpoints.folder} holds another "
            "checkpoint here than on rank 0. Use a shared folder."
        )
    if loaded is None:
        return
    with naming_damage(run.checkpoints):
        _restore(run, *loaded)


def _restore(run: Run, record: Record, state: dict[str, Tensor], best: dict[str, Tensor] | None) -> None:
    run.weights.load_state(state)
    run.epoch, run.step, run.history = record["epoch"], record["step"], record["history"]
    run.loss_sum, run.time_s = record["loss_sum"], record["time_s"]
    pruner = record.get("pruner")
    if pruner is not None:
        pruner |= {"p_y": state["pruner/p_y"]}
    if run.teacher is not None:
        run.teacher.load_state_dict({n[8:]: t for n, t in state.items() if n.startswith("teacher/")})
    if "pruner/pruned_at" in state:
        run.pruned_at[:] = state["pruner/pruned_at"].numpy()
    chosen = {} if best is None else run.history[record["best_epoch"]]
    run.alternation.load_state_dict(
        {
            "best": best and {name: tensor.to(run.device) for name, tensor in best.items()},
            "best_epoch": chosen.get("epoch"),
            "best_value": chosen.get("validation_accuracy"),
            "best_loss": chosen.get("validation_loss"),
            "pruner": pruner,
        }
    )
