"""How near each method comes to T: mean absolute error on simulated predictions.

Run: python benchmarks/bench_estimate.py [--seeds 5]
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from common import add_seeds, make_parser, seeds_of

from tolerant.noise import (
    anchor_points,
    circular,
    class_map,
    confident_joint,
    corrupt,
    dual_t,
    estimate,
    noise_rate,
    symmetric,
    transition_from_joint,
    uniform,
)

NOISE = {
    "symmetric 0.2": symmetric(10, 0.2),
    "symmetric 0.4": symmetric(10, 0.4),
    "uniform 0.8": uniform(10, 0.8),
    "circular 0.3": circular(10, 0.3),
    "cifar10 map 0.4": class_map("cifar10", 0.4),
}
# The ways to T, each from given labels and predictions.
METHODS = {
    "anchor-points": lambda given, probs: anchor_points(probs),
    "anchor-points-max": lambda given, probs: anchor_points(probs, 100.0),
    "confident-joint": lambda given, probs: transition_from_joint(confident_joint(given, probs)),
    "dual-t": dual_t,
}
# How the model differs from the perfect one, which predicts P(given label | input) exactly:
# (standard deviation of the error of each logit, temperature of the logits).
MODELS = {"perfect": (0.0, 1.0), "noisy": (0.5, 1.0), "overconfident": (0.5, 0.5)}


def simulate(
    transition: np.ndarray, error: float, temperature: float, seed: int, num_rows: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Given labels, predictions and true labels of a task with about 5 % Bayes error."""
    random = np.random.default_rng(seed)
    num_classes = len(transition)
    centre = np.eye(num_classes)[random.integers(num_classes, size=num_rows)] * 3.4
    features = centre + random.normal(size=centre.shape)
    posterior = estimate.softmax(3.4 * features)  # exact for unit normals around 3.4 e_i
    true = (posterior.cumsum(axis=1) < random.random((num_rows, 1))).sum(axis=1)
    true = true.clip(max=num_classes - 1)
    logits = np.log(posterior @ transition + 1e-12)
    logits += error * random.normal(size=logits.shape)
    given = corrupt(true, transition, seed=seed).given_labels
    return given, estimate.softmax(logits / temperature), true


def main(words: Sequence[str] | None = None) -> None:
    parser = make_parser(__doc__, out=None)
    add_seeds(parser, 5)
    arguments = parser.parse_args(words)
    seeds, num_rows = seeds_of(arguments), 400 if arguments.tiny else 20_000
    print(f"Mean absolute error of T, in hundredths ({num_rows:,} rows, 10 classes, {len(seeds)} seeds),")
    print("and in brackets the error of the noise rate that follows, in points.\n")
    print(f"{'noise':<16}{'model':<15}" + "".join(f"{name:>20}" for name in METHODS))
    for noise, transition in NOISE.items():
        for model, (error, temperature) in MODELS.items():
            errors = []
            for seed in seeds:
                given, probs, true = simulate(transition, error, temperature, seed, num_rows)
                for method in METHODS.values():
                    found = method(given, probs)
                    gap = noise_rate(found, given).overall - (given != true).mean()
                    errors.append((np.abs(found - transition).mean(), abs(gap)))
            means = 100 * np.reshape(errors, (len(seeds), -1, 2)).mean(axis=0)
            cells = "".join(f"{f'{of_t:.2f} ({of_rate:4.1f})':>20}" for of_t, of_rate in means)
            print(f"{noise:<16}{model:<15}{cells}")


if __name__ == "__main__":
    main()
