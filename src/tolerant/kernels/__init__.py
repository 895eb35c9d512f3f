"""How the losses and the batch norm are computed; what a loss is stands in `tolerant.losses`.

`can` says which way serves a call, and nobody else does. The ways of a loss of p_y: `plain`, made of the
primitives of `log_prob`, is the reference, and what compilers and transforms see; `cpu` does loss and gradient
in one sweep; `triton` in one launch on a GPU. `linear` has the last layer in it, `norm` is batch norm's.
"""
