"""Models beside networks: classifiers of scikit-learn's kind, by name or a user's own, alone or together.

`cards` has ours, one declaration each; `member` fits one to rows; `temper` moves predictions towards rare
classes as far as the labels ask for it; `choose` finds which members are best together; `committee` is
what comes of it, and `disk` keeps it without pickle; `learn_committee` does all of that, and goes on from the
`kept_scores` where it was cut off; `reweigh` minimises L_q.
"""
