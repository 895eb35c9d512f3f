"""`tolerant doctor`: what this machine has, and how to get what is missing."""

from __future__ import annotations

import os
import platform
from importlib import metadata
from pathlib import Path

import typer

from tolerant.cli import options as opt
from tolerant.extras import install_command

# Distribution name -> what it is for.
EXTRAS = {
    "rich": "progress bars",
    "safetensors": "saved networks",
    "pillow": "pictures",
    "pooch": "downloads",
    "platformdirs": "the data folder",
    "pandas": "tables",
    "pyarrow": "Parquet files",
    "scikit-learn": "the digits and the estimator",
    "scipy": "texts and intervals",
    "matplotlib": "figures",
    "jinja2": "the review page",
}


def doctor(root: opt.Root = None) -> None:
    """Show the device, versions, extractors of features and data sets, and how to get what is missing."""
    from tolerant.data.features import list_extractors

    sections = [
        ("machine", _machine()),
        ("versions", _versions()),
        ("features (--features NAME)", list_extractors()),
        (f"data in {_where(root)}", _data(root)),
    ]
    for title, lines in sections:
        typer.secho(title, bold=True)
        width = max(len(name) for name, _ in lines)
        for name, text in lines:
            typer.echo(f"  {name:<{width}}  {text}")


def _machine() -> list[tuple[str, str]]:
    import torch

    memory = ""
    if hasattr(os, "sysconf"):  # not on Windows
        memory = f", {os.sysconf('SC_PHYS_PAGES') * os.sysconf('SC_PAGE_SIZE') / 2**30:.0f} GiB"
    lines = [
        ("system", platform.platform(terse=True)),
        ("CPU", f"{os.cpu_count()} cores{memory}; torch uses {torch.get_num_threads()}"),
    ]
    for number in range(torch.cuda.device_count()):
        gpu = torch.cuda.get_device_properties(number)
        lines.append((f"GPU {number}", f"{gpu.name}, {gpu.total_memory / 2**30:.0f} GiB"))
    if not torch.cuda.is_available():
        built = f"CUDA {torch.version.cuda}" if torch.version.cuda else "the CPU only"
        lines.append(("GPU", f"none; training runs on the CPU (torch is built for {built})"))
    return lines


def _versions() -> list[tuple[str, str]]:
    from tolerant import __version__

    lines = [("tolerant", __version__), ("python", platform.python_version())]
    lines += [(name, metadata.version(name)) for name in ("torch", "numpy")]
    for name, purpose in EXTRAS.items():
        try:
            lines.append((name, metadata.version(name)))
        except metadata.PackageNotFoundError:
            lines.append((name, f"missing ({purpose}): {install_command('app')}"))
    return lines


def _where(root: Path | None) -> str:
    from tolerant.data import data_root

    try:
        return f"{data_root(root)}{'' if data_root(root).is_dir() else ' (does not exist yet)'}"
    except (ModuleNotFoundError, ValueError) as missing:
        return f"no known folder ({missing})"


def _data(root: Path | None) -> list[tuple[str, str]]:
    from tolerant.data import CARDS, data_root, downloads

    lines = [(c.name, f"{c.note}, nothing to download") for c in CARDS.values() if not c.downloads]
    for name, download in downloads().items():
        try:
            missing = download.missing(root)
        except (ModuleNotFoundError, ValueError):
            continue  # the line above says so
        if not missing:
            lines.append((name, f"found in {data_root(root) / download.folder}"))
            continue
        part = "" if len(missing) == len(download.files) else f"{missing[0].name} "
        option = f" --root {root}" if root is not None else ""
        lines.append((name, f"{part}missing: tolerant download {name}{option} ({download.size_mb} MB)"))
    return lines
