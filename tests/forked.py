"""A process of its own without a new interpreter: to import torch takes seconds, a fork does not."""

from __future__ import annotations

import os
import sys
import tempfile
import traceback
from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True)
class Ended:
    """As `subprocess.CompletedProcess`."""

    returncode: int
    stdout: str
    stderr: str


def forked(work: Callable[[], object]) -> Ended:
    """Does it in a fork of this process, whatever it does to its modules, signals and files."""
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        child = os.fork()
        if child == 0:
            _do(work, out.fileno(), err.fileno())
        status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        said = []
        for file in (out, err):
            file.seek(0)
            said.append(file.read().decode())
    return Ended(status, *said)


def _do(work: Callable[[], object], out: int, err: int) -> None:
    code = 1
    try:
        for target, stream, name in ((out, 1, "stdout"), (err, 2, "stderr")):
            os.dup2(target, stream)
            setattr(sys, name, open(stream, "w", closefd=False))  # noqa: SIM115  # pytest's are its own files
        work()
        code = 0
    except SystemExit as ended:
        code = ended.code if isinstance(ended.code, int) else int(ended.code is not None)
        if isinstance(ended.code, str):
            print(ended.code, file=sys.stderr)
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
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
