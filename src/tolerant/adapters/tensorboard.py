"""TensorBoard events of a training run, by torch's own writer."""

from __future__ import annotations

import os
from typing import Any

from tolerant.extras import extra
from tolerant.train import Callback, Job, Record, TrainResult


class TensorBoardLog(Callback):
    """Every number of an epoch's record as a scalar of that name; see them with ``tensorboard --logdir``.

        train(rows, model="mlp", loss="lq", callbacks=[TensorBoardLog("events")])

    A run that goes on from a checkpoint hides what it had written about the epochs that it repeats.
    """

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        extra("tensorboard", install="tensorboard")  # if missing, said before an epoch is spent
        self.folder = os.fspath(folder)
        self._writer: Any = None

    def on_start(self, job: Job, record: Record | None) -> None:
        from torch.utils.tensorboard import SummaryWriter

        self._writer = SummaryWriter(self.folder, purge_step=0 if record is None else record["epoch"] + 1)

    def on_epoch_end(self, job: Job, record: Record) -> None:
        for name, value in record.items():
            if name != "epoch" and value is not None:
                self._writer.add_scalar(name, value, record["epoch"])
        self._writer.flush()  # a run that is killed shows what it reached

    def on_end(self, job: Job, result: TrainResult) -> None:
        self._writer.close()
