"""The package as a whole: what imports what, and a wheel that works where nothing else is."""

from __future__ import annotations

import ast
import json
import os
import re
import subprocess
import sys
import zipfile
from collections import Counter
from pathlib import Path

import pytest
import torch
from forked import forked, without_modules

from tolerant.extras import install_command

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src" / "tolerant"
CONTRIBUTING = (ROOT / "CONTRIBUTING.md").read_text()

# What a package may import of ours, beside itself and what lies below everything.
BELOW_ALL = {
    "checks",
    "class_names",
    "csv_cells",
    "files",
    "threads",
    "extras",
    "hints",
    "locks",
    "markdown",
    "plugins",
    "printable",
    "progress",
    "ray_cluster",
    "regular",
}
ALLOWED: dict[str, set[str]] = {
    "kernels": set(),
    "losses": {"kernels"},
    "noise": set(),
    "theory": set(),
    "data": set(),
    "train": {"data", "losses", "kernels"},
    "experiment": {"train", "data", "losses", "noise", "theory"},
    "suspects": {"noise"},
    "review": {"suspects", "data"},
    "own_data": {"review", "suspects", "train", "data", "losses", "noise", "theory"},
    "report": {"experiment", "data"},  # its rows and the paper's numbers; a test below keeps training out
    "adapters": {"functional", "own_data", "experiment", "train", "data", "losses", "noise", "suspects"},
    "cli": {"adapters", "report", "own_data", "review", "suspects", "experiment", "train", "data", "losses"}
    | {"noise", "theory"},
}


def packages_imported(path: Path) -> set[str]:
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "tolerant":
            parts = (node.module or "").split(".")
            found |= {parts[1]} if len(parts) > 1 else {alias.name for alias in node.names}
        elif isinstance(node, ast.Import):
            names = [alias.name.split(".") for alias in node.names]
            found |= {parts[1] for parts in names if parts[0] == "tolerant" and len(parts) > 1}
    return found


@pytest.mark.parametrize("package", ALLOWED)
def test_imports_point_one_way(package):
    for path in (SOURCE / package).rglob("*.py"):
        wrong = packages_imported(path) - ALLOWED[package] - BELOW_ALL - {package, "__version__"}
        assert not wrong, f"{path.relative_to(ROOT)} imports {sorted(wrong)}"


def packages(folder: Path) -> set[str]:
    return {path.parent.name for path in folder.glob("*/__init__.py")}


def test_no_two_modules_have_one_name():
    """But for commands, which are called as people type them, and what every paper's folder has."""
    cli, papers = SOURCE / "cli", SOURCE / "experiment" / "papers"
    own = [path for path in SOURCE.rglob("*.py") if path.parent != cli and papers not in path.parents]
    names = Counter(path.stem for path in own if path.name != "__init__.py")
    assert [name for name, number in names.items() if number > 1] == []


def test_every_package_has_its_arrows():
    assert packages(SOURCE) == ALLOWED.keys()


def test_the_picture_of_the_packages_is_true():
    """A line for each, its own packages named in it: `train/  networks/ ...  engine/ ...`."""
    picture = CONTRIBUTING.partition("```\nsrc/tolerant/\n")[2].partition("```")[0]
    lines = {own[0]: set(own[1:]) for line in picture.splitlines() if (own := re.findall(r"(\w+)/", line))}
    assert lines == {name: packages(SOURCE / name) for name in packages(SOURCE)}


def test_the_paths_that_contributing_names_exist():
    """Below the root or the package; a word in capitals stands for any name."""
    named = [word for word in re.findall(r"`([\w./-]+)`", CONTRIBUTING) if "/" in word]
    assert named
    for path in named:
        pattern = re.sub(r"\b[A-Z]{2,}\b", "*", path.removeprefix("./")).rstrip("/")
        if not pattern.startswith(".venv"):
            assert any(any(folder.glob(pattern)) for folder in (ROOT, SOURCE)), path


def test_type_checkers_know_what_loads_on_first_use():
    import tolerant

    (block,) = (
        node for node in ast.parse((SOURCE / "__init__.py").read_text()).body if isinstance(node, ast.If)
    )
    assert {alias.asname for node in block.body for alias in node.names} == tolerant._LAZY.keys()


def test_reports_read_stored_rows_only():
    """Tables and figures need no trainer: importing them loads none."""
    code = "import sys, tolerant.report.document; print('tolerant.train' in sys.modules)"
    assert forked(without_modules(code)).stdout.strip() == "False"


def run(*command: str, **env: str) -> str:
    done = subprocess.run(command, capture_output=True, text=True, env={**os.environ, **env}, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    run(sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(folder), str(ROOT))
    (built,) = folder.glob("*.whl")
    return built


def test_wheel_works_outside_the_checkout(wheel, tmp_path):
    """An empty environment, given nothing but the wheel and the torch and numpy that are installed."""
    run(sys.executable, "-m", "venv", str(tmp_path / "venv"), "--without-pip")
    python = str(tmp_path / "venv" / "bin" / "python")
    site = Path(run(python, "-c", "import site; print(site.getsitepackages()[0])").strip())
    zipfile.ZipFile(wheel).extractall(site)  # all that pip would do with it
    # torch, numpy and what torch itself needs, linked in by name: no pandas, PIL, scikit-learn, ...
    installed = Path(torch.__path__[0]).parent
    needed = ("torch", "torchgen", "functorch", "numpy", "numpy.libs", "sympy", "mpmath", "networkx",
              "jinja2", "markupsafe", "fsspec", "filelock", "typing_extensions.py", "packaging")  # fmt: skip
    for name in needed:
        if (installed / name).exists():
            (site / name).symlink_to(installed / name)
    code = """
import sys, time
import torch, numpy
started = time.process_time()
import tolerant
spent = time.process_time() - started
import tolerant.functional, tolerant.noise, tolerant.theory
value = tolerant.LqLoss(q=0.5)(torch.tensor([[0.0, 0.0]]), torch.tensor([0]))
print(tolerant.__file__, float(value), spent)
assert not {"pandas", "PIL", "sklearn", "rich", "typer", "matplotlib"} & set(sys.modules)
"""
    where, value, spent = run(python, "-c", code, PYTHONPATH="").split()
    assert Path(where).is_relative_to(site)
    assert float(value) == pytest.approx(2 * (1 - 0.5**0.5), rel=1e-6)
    assert float(spent) < 1.0
    shipped = zipfile.ZipFile(wheel).namelist()
    assert {"tolerant/py.typed", "tolerant/experiment/papers/gce2018/published.json"} <= {*shipped}
    assert not any(name.startswith(("tests", "results")) for name in shipped)


def test_command_line_without_its_extra_says_what_to_install():
    done = forked(without_modules("from tolerant.cli import main; main()", "typer"))
    assert done.returncode != 0
    assert install_command("app") in done.stderr


def test_hints_name_the_checkout_or_the_folder_or_the_index(tmp_path, monkeypatch):
    """As the package was installed: `-e`, from a folder, from an index."""
    assert install_command.__wrapped__("app") == f"pip install -e '{ROOT}[app]'"
    monkeypatch.setattr("tolerant.extras.__file__", str(tmp_path / "a" / "b" / "extras.py"))
    origin = {"url": "file:///home/me/my%20code", "dir_info": {}}

    class Installed:
        def read_text(self, name):
            return origin and json.dumps(origin)

    monkeypatch.setattr("importlib.metadata.distribution", lambda name: Installed())
    assert install_command.__wrapped__("app") == "pip install '/home/me/my code[app]'"
    origin = None
    assert install_command.__wrapped__("app,lite0") == "pip install 'tolerant[app,lite0]'"


@pytest.mark.parametrize("code", ["from tolerant import *", "import pydoc; pydoc.render_doc('tolerant')"])
def test_what_lists_the_package_needs_no_extra(code):
    done = forked(without_modules(code, "sklearn"))
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    ("absent", "code"),
    [
        ("sklearn", "from tolerant import NoisyLabelClassifier"),
        ("pyarrow", "from tolerant.data import load; load('rows.parquet')"),
        (
            "matplotlib",
            f"import sys; sys.argv[1:] = ['report', 'pruning', '--results', {str(ROOT / 'results')!r}]; "
            "from tolerant.cli import main; main()",
        ),
    ],
    ids=["sklearn", "pyarrow", "matplotlib"],
)
def test_what_needs_an_extra_says_what_to_install(absent, code, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "rows.parquet").touch()
    done = forked(without_modules(code, absent))
    assert done.returncode == 1
    assert install_command("app") in done.stderr.splitlines()[-1]
