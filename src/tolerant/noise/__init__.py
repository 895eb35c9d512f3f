"""Label noise: make it, the same on every machine, and estimate it."""

from tolerant.checks import check_transition
from tolerant.noise import estimate, transition
from tolerant.noise.by_input import OpenSet, instance_dependent, replace_inputs
from tolerant.noise.corrupt import Corruption, Manifest, corrupt, label_digest
from tolerant.noise.estimate import (
    NoiseRate,
    anchor_points,
    confident_joint,
    dual_t,
    noise_rate,
    transition_from_joint,
)
from tolerant.noise.kinds import KINDS, NoiseKind, make_transition
from tolerant.noise.transition import (
    block5,
    circular,
    class_dependent,
    class_map,
    named_pairs,
    pair,
    superclass,
    symmetric,
    uniform,
)

__all__ = [
    "KINDS",
    "Corruption",
    "Manifest",
    "NoiseKind",
    "NoiseRate",
    "OpenSet",
    "anchor_points",
    "block5",
    "check_transition",
    "circular",
    "class_dependent",
    "class_map",
    "confident_joint",
    "corrupt",
    "dual_t",
    "estimate",
    "instance_dependent",
    "label_digest",
    "make_transition",
    "named_pairs",
    "noise_rate",
    "pair",
    "replace_inputs",
    "superclass",
    "symmetric",
    "transition",
    "transition_from_joint",
    "uniform",
]
