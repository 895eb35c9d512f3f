"""What is still to be done, as every engine keeps it."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

from tolerant.experiment.one_run import Outcome, Tell
from tolerant.experiment.spec import RunSpec

RETRY_S = 0.5  # between looks at runs that other processes are doing
MAX_DEATHS = 3  # a run that takes its worker down this often has failed


class Queue:
    """Specs to do; busy ones come back, but not those that need a run which has failed."""

    def __init__(self, specs: Sequence[RunSpec], tell: Tell) -> None:
        self.waiting, self.later = deque(specs), deque[RunSpec]()
        self._tell = tell
        self._failed: set[str] = set()

    def settle(self, outcome: Outcome) -> None:
        if outcome.status == "busy":
            self.later.append(outcome.spec)
            return
        if outcome.status == "failed":
            self._failed.add(outcome.spec.key)
        self._tell(outcome)

    def look_again(self) -> None:
        """Busy specs wait for their turn once more."""
        while self.later:
            spec = self.later.popleft()
            if spec.needs is not None and spec.needs.key in self._failed:
                self.settle(Outcome(spec, "failed", f"it needs {spec.needs.title()}, which failed"))
            else:
                self.waiting.append(spec)
