"""A process of its own without a new interpreter: to import torch takes seconds, a fork does not."""

from __future__ import annotations

import os
import sys
import tempfile
import traceback
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import partial

import torch


@dataclass(frozen=True)
class Ended:
    """As `subprocess.CompletedProcess`."""

    returncode: int
    stdout: str
    stderr: str


def forked(work: Callable[[], object]) -> Ended:
    """Does it in a fork of this process, whatever it does to its modules, signals and files."""
    return _Fork(work).ended()


def forked_ranks(count: int, work: Callable[[], object]) -> list[Ended]:
    """Does it on so many ranks that find each other as those of torchrun do."""
    # As torchrun does: a port found free and closed again may be another's when rank 0 opens it.
    store = torch.distributed.TCPStore("localhost", 0, is_master=True, wait_for_workers=False)
    alike = {"WORLD_SIZE": count, "LOCAL_WORLD_SIZE": count, "TORCHELASTIC_USE_AGENT_STORE": True}
    alike |= {"MASTER_ADDR": "localhost", "MASTER_PORT": store.port}

    def on_rank(rank: int) -> None:
        own = {**alike, "RANK": rank, "LOCAL_RANK": rank}
        os.environ.update({name: str(value) for name, value in own.items()})
        work()

    forks = [_Fork(partial(on_rank, rank)) for rank in range(count)]
    return [fork.ended() for fork in forks]


class _Fork:
    def __init__(self, work: Callable[[], object]) -> None:
        self.said = [tempfile.TemporaryFile() for _ in range(2)]  # noqa: SIM115  # closed by `ended`
        self.child = os.fork()
        if self.child == 0:
            _do(work, *(file.fileno() for file in self.said))

    def ended(self) -> Ended:
        code = os.waitstatus_to_exitcode(os.waitpid(self.child, 0)[1])
        texts = []
        for file in self.said:
            with file:
                file.seek(0)
                texts.append(file.read().decode())
        return Ended(code, *texts)


def _do(work: Callable[[], object], out: int, err: int) -> None:
    code = 1
    try:
        for target, stream, name in ((out, 1, "stdout"), (err, 2, "stderr")):
            os.dup2(target, stream)
            setattr(sys, name, open(stream, "w", closefd=False))  # noqa: SIM115  # pytest's are its own files
        torch.set_num_threads(1)  # the parent's other threads are not here
        work()
        code = 0
    except SystemExit as ended:
        code = ended.code if isinstance(ended.code, int) else int(ended.code is not None)
        if isinstance(ended.code, str):
            print(ended.code, file=sys.stderr)
    except BaseException:
        traceback.print_exc()
    finally:
        for stream in (sys.stdout, sys.stderr):
            with suppress(AttributeError, OSError, ValueError):  # which the work may have closed
                stream.flush()
        os._exit(code)  # nothing of the parent's is ended or written twice


def without_modules(code: str, *absent: str) -> Callable[[], None]:
    """Runs the code as a new interpreter would that has torch, nothing of ours yet, and not these."""

    def work() -> None:
        gone = ("tolerant", *absent)
        for name in [name for name in sys.modules if name.partition(".")[0] in gone]:
            del sys.modules[name]
        sys.modules.update(dict.fromkeys(absent))  # type: ignore[arg-type]  # None: cannot be imported
        exec(compile(code, "<code>", "exec"), {"__name__": "__main__"})

    return work
