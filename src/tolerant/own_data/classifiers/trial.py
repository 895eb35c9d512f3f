"""Members on the same folds: which of them, alone or together, agree best with the given labels."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

from tolerant.own_data.choose_features import Say
from tolerant.own_data.classifiers.choose import Choice, choose, expected_seconds
from tolerant.own_data.classifiers.kept_scores import KeptScores
from tolerant.own_data.classifiers.member import Member
from tolerant.own_data.classifiers.rows import are_texts
from tolerant.own_data.classifiers.score import Parts, Scored, score_member
from tolerant.own_data.folds import choose_folds
from tolerant.own_data.learned import Tried
from tolerant.own_data.out_of_fold import fold_parts
from tolerant.own_data.task import Task

# So many rows of a table tell which members are worth their time on all, if there are twice as many and more:
# the standard error of a difference is 0.1 to 0.2 points there, and members that lose by less are kept.
_ENOUGH_TO_CHOOSE, _MANY = 20_000, 50_000
_WORTH_SAYING_S = 30  # from here on each model is said to be done


@dataclass(frozen=True, eq=False)
class Trial:
    """What the members have said out of fold, and which of them are best."""

    parts: Parts
    scored: Mapping[str, Scored]
    choice: Choice
    tried: tuple[Tried, ...]


def try_members(members: Sequence[Member], task: Task, say: Say, kept: KeptScores) -> Trial:
    """Fit each to the folds, and choose; of very many rows those alone that are chosen on some of them."""
    num_rows, rest = len(task.dataset), members
    before: tuple[Tried, ...] = ()
    if len(members) > 1 and task.folds >= 2 and num_rows >= _MANY and not are_texts(task.dataset):
        some = task.of(choose_folds(task.dataset, num_rows // _ENOUGH_TO_CHOOSE, task.settings.seed) == 0)
        num_some = len(some.dataset)
        say(f"First on {num_some:,} of the {num_rows:,} rows, to see which models suit them:")
        trial = _try_all(members, some, say, kept.of_some(num_some), times=1)
        rest = [member for member in members if member.name in trial.choice.names]
        before = tuple(replace(one, name=f"{one.name}, {num_some:,} rows") for one in trial.tried)
    trial = _try_all(rest, task, say, kept, times=2)
    return replace(trial, tried=(*before, *trial.tried) if len(members) > 1 else ())


def _try_all(members: Sequence[Member], task: Task, say: Say, kept: KeptScores, *, times: int) -> Trial:
    """``times``: how often the chosen ones may be fitted to the folds, the second time without what they
    doubt."""
    dataset, settings = task.dataset, task.settings
    parts = fold_parts(dataset, task.folds, settings.seed, task.sample_weight) if task.folds >= 2 else []
    seconds = expected_seconds(members, dataset, len(parts))
    names = ", ".join(member.name for member in members)
    most = max(1, round(times * sum(seconds.values())))
    known = f"; at most about {most} s" if len(seconds) == len(members) else ""
    say(f"Models: {names}, {f'in {len(parts)} folds' if parts else 'without folds'}{known}.")
    scored = {}
    for number, member in enumerate(members, 1):
        scored[member.name] = kept.get(member.name, partial(score_member, member, task, parts))
        if most >= _WORTH_SAYING_S:
            say(f"  {number} of {len(members)}: {member.name}, {scored[member.name].time_s:.0f} s")
    held_out = next(iter(scored.values())).out_of_fold.held_out
    if not held_out.any():  # nothing to choose by
        tau = 1.0 if settings.class_weight == "balanced" else 0.0
        return Trial(parts, scored, Choice(tuple(scored), tau, float("nan")), ())
    best, alone = choose(
        dataset.given_labels[held_out],
        {name: found.out_of_fold.probs[held_out] for name, found in scored.items()},
        task.prior(),
        settings.class_weight,
    )
    tried = [Tried(name, choice.score, scored[name].time_s) for name, choice in alone.items()]
    if len(best.names) > 1:
        tried.append(Tried(" + ".join(best.names), best.score, 0.0))
    return Trial(parts, scored, best, tuple(tried))
