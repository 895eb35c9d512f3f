"""What a wheel has to do in an empty environment, outside the checkout: run by `make release`.

python -I smoke_release.py CHECKOUT
"""

from __future__ import annotations

import csv
import subprocess
import sys
import tempfile
from pathlib import Path

import torch

import tolerant


def run(*words: str | Path) -> None:
    subprocess.run([sys.executable, "-I", "-m", "tolerant", *map(str, words)], check=True)


def main() -> None:
    checkout = Path(sys.argv[1]).resolve()
    assert not Path(tolerant.__file__).resolve().is_relative_to(checkout / "src"), tolerant.__file__
    layer = torch.nn.Linear(4, 3)
    tolerant.LqLoss(q=0.7)(layer(torch.randn(8, 4)), torch.arange(8) % 3).backward()
    assert layer.weight.grad is not None
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        with (folder / "rows.csv").open("w", newline="") as file:
            rows = csv.writer(file)
            rows.writerow(["height", "weight", "label"])
            for i in range(120):
                wrong = i % 10 == 0
                rows.writerow([i % 3 + i / 1000, (i % 3) ** 2, "abc"[(i + wrong) % 3]])
        run("train", folder / "rows.csv", "--out", folder / "run", "--model", "linear", "--folds", 3)
        run("predict", folder / "run", folder / "rows.csv", "--out", folder / "predictions.csv")
        predicted = [row["label"] for row in csv.DictReader((folder / "predictions.csv").open())]
        assert predicted == ["abc"[i % 3] for i in range(120)], predicted[:10]
        suspects = list(csv.DictReader((folder / "run" / "suspects.csv").open()))
        assert {int(row["index"]) for row in suspects} == set(range(0, 120, 10)), suspects
        assert (folder / "run" / "report.html").stat().st_size > 10_000
        run("demo", "--out", folder / "demo")
    print(f"tolerant {tolerant.__version__} works from {Path(tolerant.__file__).parent}")


if __name__ == "__main__":
    main()
