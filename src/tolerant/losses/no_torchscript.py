"""TorchScript, which torch has given up for torch.export: refused by a sentence that names the way."""

from __future__ import annotations

from typing import Any, NoReturn

from torch import nn


class NoTorchScript(nn.Module):
    """Base of loss modules: `torch.jit.script` and `torch.jit.trace` end in an error that says how else."""

    def __prepare_scriptable__(self) -> NoReturn:
        self._refuse("torch.jit.script")

    def _slow_forward(self, *arguments: Any, **named: Any) -> NoReturn:  # what torch calls while it traces
        self._refuse("torch.jit.trace")

    def _refuse(self, what: str) -> NoReturn:
        name = type(self).__name__
        raise NotImplementedError(
            f"{what} cannot take {name}, whose way of computing is chosen when it is called. Use "
            "torch.export.export(loss, (logits, labels)) or torch.compile(loss); to script a model, leave "
            "its loss out."
        )
