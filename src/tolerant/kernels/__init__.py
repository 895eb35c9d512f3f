"""How the losses and the batch norm are computed; what a loss is stands in `tolerant.losses`.

`can` says which way serves a call, and nobody else does. A loss of p_y has three: `plain`, made of the
primitives of `log_prob`, is the reference, and what compilers and transforms see; `cpu` forms loss and
gradient in one sweep, `triton` in one launch on a GPU. `linear_chunks` has the last layer in it.
"""
