"""What a model is, in Markdown beside it: what it was trained on, and how far its labels could be trusted."""

from __future__ import annotations

from tolerant.data.dataset import NoisyDataset
from tolerant.markdown import markdown_table, plain
from tolerant.own_data.run_folder import SavedRun


def model_card(run: SavedRun, dataset: NoisyDataset, file: str) -> str:
    """Of an exported network; ``dataset``: what the run was trained on."""
    spec, encoder, suspects = run.spec, run.encoder, run.suspects(dataset)
    rate, names = suspects.noise_rate, encoder.class_names
    shape = ", ".join(map(str, encoder.picture_shape or encoder.shape))
    rows = "pictures, uint8" if encoder.kind == "image" else "encoded columns, float32"
    inside = encoder.extractor and f" on features of {encoder.extractor.name}, which is inside"
    facts = {
        "Trained on": f"{len(dataset):,} rows of {run.title}",
        "Classes": ", ".join(names[:20]) + (f" and {len(names) - 20} more" if len(names) > 20 else ""),
        "Labels estimated to be wrong": f"{rate.estimate:.1%}, between {rate.low:.1%} and {rate.high:.1%}",
        "Suspects": f"{len(suspects):,} rows; a person decided {suspects.num_reviewed:,}",
        "Network": f"{spec['model']}{inside or ''}",
        "Loss": ", ".join(
            [spec["loss"], *(f"{name} = {value}" for name, value in spec["loss_args"].items())]
        ),
        "Pruning": "none" if spec["k"] is None else f"rows with p at most k = {spec['k']} were left out",
        "Rows kept": "all" if suspects.kept_share is None else f"{suspects.kept_share:.1%}",
        "Input": f"`rows`: {rows} (N, {shape}), any N",
        "Output": f"`probabilities`: float32 (N, {len(names)}), in the order of `class_names`",
    }
    if encoder.encoder is not None:
        facts["Columns"] = ", ".join(encoder.encoder.feature_names)
    lines = [
        f"# {plain(run.title)}",
        "",
        f"A classifier trained by tolerant {spec['version']} on labels that are partly wrong.",
        "",
        markdown_table(["", ""], [[name, plain(fact)] for name, fact in facts.items()], "ll"),
        "",
        *("## Use", "", "```python", *_use(file), "```", ""),
        *("## Limits", ""),
        "The probabilities are those of labels as they were given, mistakes included, and not calibrated. No",
        "true label was seen: the share of wrong ones is an estimate from the model's own doubts, and leaves",
        "out mistakes that follow a rule.",
        "",
    ]
    return "\n".join(lines)


def _use(file: str) -> list[str]:
    if file.endswith(".onnx"):
        return [
            "import json, onnxruntime",
            "",
            f'session = onnxruntime.InferenceSession("{file}")',
            'class_names = json.loads(session.get_modelmeta().custom_metadata_map["class_names"])',
            'probabilities = session.run(None, {"rows": rows})[0]  # rows: a numpy array',
        ]
    return [
        "import json, torch",
        "",
        'about = {"tolerant.json": ""}',
        f'model = torch.export.load("{file}", extra_files=about).module()',
        'class_names = json.loads(json.loads(about["tolerant.json"])["class_names"])',
        "probabilities = model(rows)  # rows: a tensor",
    ]
