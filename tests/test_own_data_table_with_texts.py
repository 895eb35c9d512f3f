"""A table with columns of free text is read whole: trained on, listed, explained, predicted, corrected."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from own_data_helpers import page_data, read, tolerant

from tolerant.data import InputEncoder, NoisyDataset, Source, load
from tolerant.data.digest import dataset_digests
from tolerant.data.encoders.inputs import Unlabelled
from tolerant.data.encoders.sparse import SparseRows
from tolerant.data.features.extractor import Identity
from tolerant.own_data import Settings, load_run
from tolerant.own_data.classifiers import rows, trial
from tolerant.own_data.classifiers.cards import CLASSIFIERS
from tolerant.own_data.classifiers.choose import expected_seconds, members_for
from tolerant.own_data.corrected_rows import CorrectedRows
from tolerant.own_data.learn import learn
from tolerant.own_data.train_source import train_source
from tolerant.review.page import columns_and_values

WORDS = {
    "hardware": ["printer", "paper", "toner", "cable", "screen"],
    "account": ["login", "password", "locked", "reset", "user"],
}
TEAMS = ("billing", "hardware", "account")
ALONE = ("--features", "none", "--folds", 2)


def made_up_tickets(num_rows: int = 300, wrong: float = 0.2, seed: int = 0) -> pd.DataFrame:
    """Billing is told by a column alone, the other two teams by words alone."""
    rng = np.random.default_rng(seed)
    team = rng.choice(TEAMS, num_rows)
    of = [WORDS[rng.choice(list(WORDS)) if each == "billing" else each] for each in team]
    bodies = [" ".join(rng.choice([*words, "please", "help", "the", "my"], 8)) for words in of]
    plan = np.where(team == "billing", "paid", rng.choice(["free", "trial"], num_rows))
    other = np.array([rng.choice([name for name in TEAMS if name != each]) for each in team])
    return pd.DataFrame(
        {
            "ticket": [f"T-{number:04d}" for number in rng.permutation(num_rows)],
            "plan": plan,
            "minutes": rng.integers(1, 90, num_rows),
            "body": bodies,
            "label": np.where(rng.random(num_rows) < wrong, other, team),
            "true": team,
        }
    )


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, pd.DataFrame, str]:
    """A folder with tickets.csv and its run, the tickets, and what the training said."""
    folder, tickets = tmp_path_factory.mktemp("tickets"), made_up_tickets()
    tickets.drop(columns="true").to_csv(folder / "tickets.csv", index=False)
    said = tolerant("train", folder / "tickets.csv", "--out", folder / "run", *ALONE)
    return folder, tickets, said


def new_rows(folder: Path, **changed: object) -> Path:
    path = folder / "new.csv"
    made_up_tickets(120, seed=1).drop(columns=["label", "true"]).assign(**changed).to_csv(path, index=False)
    return path


def test_words_and_columns_are_read_together(trained, tmp_path):
    folder, tickets, said = trained
    assert "Column 'ticket' names the rows: --id ticket" in said
    assert "Text: 'body' (--text body); columns beside it: 'plan', 'minutes'" in said
    assert "Models: linear, forest, extra-trees, words, characters, bayes" in said
    tolerant("predict", folder / "run", new_rows(tmp_path), "--out", tmp_path / "found.csv")
    found, true = read(tmp_path / "found.csv"), made_up_tickets(120, seed=1)
    assert [row["id"] for row in found] == true.ticket.tolist()
    right = np.mean([row["label"] for row in found] == true.true.to_numpy())
    assert right > 0.9, "words alone, or columns alone, tell two thirds"
    listed = {row["id"] for row in read(folder / "run" / "suspects.csv")}
    wrong = set(tickets.ticket[tickets.label != tickets.true])
    assert len(listed & wrong) > 0.9 * len(wrong)


def test_the_page_shows_the_text_and_names_words_and_columns(trained):
    folder, _, _ = trained
    data = page_data(folder / "run" / "report.html")
    assert data["features"] == ["body", "plan", "minutes"], "the text first, and none is (not used)"
    assert all(len(values[0].split()) == 8 for values in data["values"])
    named = [reason for found in data["reasons"] for reason in found]
    assert ["plan", "paid"] in named, "a column, with its value"
    assert {name for name, value in named if not value} & {"printer", "login", "password", "toner"}


def test_a_run_is_listed_again_and_goes_to_a_tool_with_its_texts(trained, tmp_path):
    folder, _, _ = trained
    before, page = (folder / "run" / "suspects.csv").read_bytes(), page_data(folder / "run" / "report.html")
    tolerant("audit", folder / "run", "--all-rows")
    assert (folder / "run" / "suspects.csv").read_bytes() == before
    assert page_data(folder / "run" / "report.html")["reasons"] == page["reasons"]
    assert len(read(folder / "run" / "rows.csv")) == 300
    tolerant("export", folder / "run", "--to", "label-studio", "--out", tmp_path / "out")
    tasks = json.loads((tmp_path / "out" / "tasks.json").read_text())
    assert len(tasks[0]["data"]["table"]["body"].split()) == 8


def test_reasons_need_no_features_of_changed_texts(trained):
    folder, _, _ = trained
    run = load_run(folder / "run")
    data = run.load_rows()
    suspects = run.suspects(data)
    found = run.reasons(data, suspects)
    with_features = replace(run, encoder=replace(run.encoder, extractor=Identity("none", "1", "0", "mean")))
    assert with_features.reasons(data, suspects) == found
    assert any(found)


def test_a_run_is_read_back_and_goes_on_as_it_was(trained):
    folder, _, _ = trained
    run = load_run(folder / "run")
    data = run.load_rows()
    assert data.kind == "table"
    assert data.text_columns == ("body",)
    assert "".join(path.suffix for path in (folder / "run").iterdir()).count("pkl") == 0
    probs = run.probs(run.encoder.trainable(data))
    assert probs.shape == (300, 3)
    before = (folder / "run" / "suspects.csv").read_bytes()
    tolerant("train", folder / "tickets.csv", "--out", folder / "run", *ALONE)
    assert (folder / "run" / "suspects.csv").read_bytes() == before
    assert not (folder / "run" / "earlier-1").exists(), "the same data and settings"


def test_an_edited_text_is_told_of_and_makes_another_training(trained, tmp_path):
    folder, tickets, _ = trained
    data = CorrectedRows.read(Source(str(folder / "tickets.csv")).with_roles(lambda line: None))
    tickets.drop(columns="true").assign(body=tickets.body.str.replace("toner", "ink", n=1)).to_csv(
        tmp_path / "tickets.csv", index=False
    )
    other = CorrectedRows.read(Source(str(tmp_path / "tickets.csv")).with_roles(lambda line: None))
    differ = dataset_digests(data.dataset) != dataset_digests(other.dataset)
    assert np.array_equal(differ, tickets.body.str.contains("toner"))
    assert data.fingerprint(Settings(), 5) != other.fingerprint(Settings(), 5)


def test_corrections_are_applied_and_refused_for_another_text(trained, tmp_path):
    folder, tickets, _ = trained
    data = page_data(folder / "run" / "report.html")
    first, digest = data["ids"][0], data["digests"][0]
    decided = pd.DataFrame(
        {
            "id": [first],
            "given_label": [data["classes"][data["given"][0]]],
            "new_label": [data["classes"][data["suggested"][0]]],
            "decision": ["accept"],
            "row_digest": [digest],
        }
    )
    decided.to_csv(tmp_path / "corrections.csv", index=False)
    how = ("--labels", tmp_path / "corrections.csv", "--out", tmp_path / "run", "--model", "linear", *ALONE)
    tolerant("train", folder / "tickets.csv", *how)
    assert first not in {row["id"] for row in read(tmp_path / "run" / "suspects.csv")}
    edited = tickets.drop(columns="true")
    edited.loc[edited.ticket == first, "body"] += " again"
    edited.to_csv(tmp_path / "edited.csv", index=False)
    with pytest.raises(ValueError, match=r"changed|content|edited"):
        tolerant("train", tmp_path / "edited.csv", *how)


def test_what_new_rows_may_lack(trained, tmp_path):
    run = trained[0] / "run"
    with pytest.raises(
        ValueError, match=r"new.csv has no column 'body'.*Say which with text=\.\.\. \(--text\)"
    ):
        tolerant("predict", run, lacking(tmp_path, "body"))
    with pytest.raises(ValueError, match="no column 'plan', with which the encoder was fitted"):
        tolerant("predict", run, lacking(tmp_path, "plan"))
    renamed = pd.read_csv(new_rows(tmp_path)).rename(columns={"body": "message"})
    renamed.to_csv(tmp_path / "renamed.csv", index=False)
    out = ("--out", tmp_path / "found.csv")
    tolerant("predict", run, tmp_path / "renamed.csv", "--text", "message", *out)
    by_name = read(tmp_path / "found.csv")
    tolerant("predict", run, new_rows(tmp_path), *out)
    assert read(tmp_path / "found.csv") == by_name


def test_new_rows_of_which_nobody_says_where_the_text_is(trained, tmp_path):
    encoder = load_run(trained[0] / "run").encoder
    np.savez(tmp_path / "new.npz", inputs=np.zeros((3, encoder.shape[0]), np.float32))
    for path in (new_rows(tmp_path), tmp_path / "new.npz"):
        with pytest.raises(ValueError, match=r"comes without texts, .*which columns hold them: text=\.\.\."):
            Source(str(path)).read(encoder)


def lacking(folder: Path, column: str) -> Path:
    pd.read_csv(new_rows(folder)).drop(columns=column).to_csv(folder / "new.csv", index=False)
    return folder / "new.csv"


def test_empty_texts_are_left_to_the_columns(trained, tmp_path):
    run, paid = load_run(trained[0] / "run"), (made_up_tickets(120, seed=1).plan == "paid").to_numpy()
    with pytest.warns(UserWarning, match=r"120 of 120 texts are empty .*; the other columns decide"):
        found = Source(str(new_rows(tmp_path, body=""))).read(run.encoder, run.source)
    labels = np.array(run.encoder.class_names)[run.probs(found).argmax(1)]
    assert ((labels == "billing") == paid).all()


def test_a_table_of_a_run_without_texts_takes_none(tmp_path):
    path = tmp_path / "tickets.csv"
    made_up_tickets(80).drop(columns="true").to_csv(path, index=False)
    tolerant("train", path, "--ignore", "body", "--out", tmp_path / "run", "--model", "linear", *ALONE)
    assert load_run(tmp_path / "run").encoder.text is None
    with pytest.raises(ValueError, match=r"text \(--text\) names 'body', and the model was trained"):
        tolerant("predict", tmp_path / "run", path, "--text", "body")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"text": "bodi"}, r"no column 'bodi'.*Say which with text=\.\.\. \(--text\)"),
        ({"text": ["body", "label"]}, r"text \(--text\) and label \(--label\) both name 'label'"),
        ({"text": "body", "ignore": ["body"]}, r"text \(--text\) and ignore \(--ignore\) both name 'body'"),
        ({"text": "body", "categorical": ["body"]}, "text .* and categorical .* both name 'body'"),
    ],
)
def test_columns_of_text_that_cannot_be_meant(options, message, tmp_path):
    made_up_tickets(80).drop(columns="true").to_csv(tmp_path / "tickets.csv", index=False)
    with pytest.raises(ValueError, match=message):
        load(tmp_path / "tickets.csv", **options)


def test_the_page_shows_more_of_a_text_than_of_a_word(tmp_path):
    tickets = made_up_tickets(80).drop(columns="true")
    long = tickets.assign(body="word " * 300, plan=tickets.plan.str.ljust(700, "x"))
    long.to_csv(tmp_path / "tickets.csv", index=False)
    data = load(tmp_path / "tickets.csv", text="body", id="ticket")
    titles, (values,) = columns_and_values(data, np.array([3]))
    shown = dict(zip(titles, map(len, values), strict=True))
    assert shown["body"] == 1500
    assert shown["plan"] < 700


def test_several_texts_are_one(tmp_path):
    tickets = made_up_tickets(80).assign(title=made_up_tickets(80, seed=2).body)
    tickets.loc[3, "title"] = ""
    tickets.drop(columns="true").to_csv(tmp_path / "tickets.csv", index=False)
    data = load(tmp_path / "tickets.csv", text=["title", "body"], ignore=["ticket"])
    assert data.texts[0] == f"{tickets.title[0]}\n{tickets.body[0]}"
    assert data.texts[3] == tickets.body[3]
    assert {name.split(" = ")[0] for name in data.encoder.feature_names} == {"plan", "minutes"}
    assert data.subset(np.array([3, 0])).texts.tolist() == [data.texts[3], data.texts[0]]
    alone = load(tmp_path / "tickets.csv", text=["title", "body"], ignore=["ticket", "plan", "minutes"])
    assert alone.kind == "text"
    assert alone.inputs.tolist() == data.texts.tolist()


def encoded(folder: Path, num_rows: int = 80, **how: bool) -> tuple[NoisyDataset, InputEncoder, NoisyDataset]:
    """The rows, their encoder, and the rows as models get them."""
    made_up_tickets(num_rows).drop(columns="true").to_csv(folder / "tickets.csv", index=False)
    data = load(folder / "tickets.csv", text="body", id="ticket")
    encoder = InputEncoder.fit(data, **how)
    return data, encoder, encoder.trainable(data)


def test_columns_stand_beside_words_as_they_are(tmp_path):
    data, encoder, found = encoded(tmp_path, with_characters=True)
    assert found.inputs.parts == ("words", "characters", "columns")
    assert found.inputs.shape[1:] == encoder.shape
    table = load(tmp_path / "tickets.csv", id="ticket", ignore=["body"])
    np.testing.assert_array_equal(rows.of_table(found), table.inputs)
    np.testing.assert_array_equal(rows.columns(found), rows.columns(table))
    both, num_columns = rows.with_words(found), table.inputs.shape[1]
    assert both.shape[1] == num_columns + len(encoder.text.vocabulary)
    lengths = np.sqrt(both[:, :num_columns].power(2).sum(1))
    np.testing.assert_allclose(lengths, 1, rtol=1e-6, err_msg="as long as words, or the fit takes long")
    assert not rows.are_texts(found), "doubted rows are left out, and predictions moved, as for tables"
    again = InputEncoder.from_dict(json.loads(json.dumps(encoder.to_dict())))
    new = again.unlabelled(Unlabelled(data.inputs, data.ids, "table", data.texts), "new.csv")
    assert (new.inputs.matrix != found.inputs.matrix).nnz == 0


def test_some_rows_of_such_a_table_have_its_parts(tmp_path, monkeypatch):
    """Of many rows some choose the models: they had become dense, and their words any columns."""
    _, encoder, data = encoded(tmp_path, with_characters=True)
    some = data.subset(np.arange(80) % 3 == 0)
    assert (some.inputs.parts, some.inputs.shape) == (data.inputs.parts, (27, *encoder.shape))
    np.testing.assert_array_equal(some.inputs[np.arange(27)], data.inputs[np.arange(0, 80, 3)])
    np.testing.assert_array_equal(rows.columns(some), rows.columns(data)[::3])
    np.testing.assert_array_equal(some.inputs.digests, data.inputs.digests[::3])
    monkeypatch.setattr(trial, "_ENOUGH_TO_CHOOSE", 40)
    monkeypatch.setattr(trial, "_MANY", 80)
    learned = learn(data, Settings(), folds=2, progress="quiet")
    names = [tried.name for tried in learned.tried]
    assert {"linear, 40 rows", "bayes, 40 rows"} <= {*names}


def test_columns_for_networks_are_as_long_as_words(tmp_path):
    data, encoder, found = encoded(tmp_path)
    assert isinstance(found.inputs, SparseRows)
    words, columns = np.split(found.inputs[np.arange(80)], [len(encoder.text.vocabulary)], axis=1)
    lengths = [(each**2).sum(1).mean() ** 0.5 for each in (words, columns)]
    assert lengths[0] == pytest.approx(lengths[1], rel=0.1)
    np.testing.assert_allclose(found.inputs.part("columns").toarray(), data.inputs, rtol=1e-6)
    np.testing.assert_allclose(rows.columns(found)[:, 1], rows.columns(data)[:, 1], rtol=1e-6)


def test_every_model_takes_such_a_table_or_it_is_said_which_do(tmp_path):
    _, _, data = encoded(tmp_path, 400, with_characters=True)
    members = members_for(data, Settings())
    names = [member.name for member in members]
    assert names == ["linear", "trees", "forest", "extra-trees", "words", "characters", "bayes"]
    assert all(0 < each < 60 for each in expected_seconds(members, data, 5).values())
    assert {name for name, card in CLASSIFIERS.items() if card.suits(data)} >= {*names, "lightgbm"}
    with pytest.raises(ValueError, match=r"'linear-10' .* does not suit these rows; these do: linear, trees"):
        members_for(data, Settings(model="linear-10"))


def test_a_network_learns_from_words_and_columns_and_is_not_exported(tmp_path):
    path = tmp_path / "tickets.csv"
    made_up_tickets(wrong=0.1).drop(columns="true").to_csv(path, index=False)
    tolerant("train", path, "--out", tmp_path / "run", "--model", "network", "--epochs", 40, *ALONE)
    run, true = load_run(tmp_path / "run"), made_up_tickets(120, seed=1).true
    found = Source(str(new_rows(tmp_path))).read(run.encoder, run.source)
    right = np.array(run.encoder.class_names)[run.probs(found).argmax(1)] == true
    assert right.mean() > 0.85
    with pytest.raises(ValueError, match="is a model of texts, whose words are no tensors"):
        tolerant("export", tmp_path / "run", "--to", "torch")


def test_a_run_of_texts_is_read_as_such_though_there_are_columns(tmp_path):
    """As runs were before columns were read beside a text that somebody had named."""
    path, run = tmp_path / "tickets.csv", tmp_path / "run"
    made_up_tickets(120).drop(columns="true").to_csv(path, index=False)
    named = Source(str(path), {"text": "body", "ignore": ["ticket", "plan", "minutes"]})
    train_source(named, run, Settings(model="words"), folds=2, device="cpu")
    spec = json.loads((run / "spec.json").read_text())
    spec["source"]["options"] = {"text": "body"}
    (run / "spec.json").write_text(json.dumps(spec))
    assert load_run(run).load_rows().kind == "text"
    assert len(Source(str(path)).read(load_run(run).encoder, load_run(run).source)) == 120
