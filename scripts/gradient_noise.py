"""Print the noise of the estimators' gradients on a trained model: `vimco.gradient_statistics` at its parameters.

    python scripts/gradient_noise.py docs/models/halves 5 20

The numbers after the run are values of K. The ratio is ‖mean‖ / √variance of the proposal's gradient, over 200 sets of
samples of one batch of 24 test examples; pure noise has a ratio of 0.07.
"""

import sys

import jax
import jax.numpy as jnp

import vimco
from vimco.runs.experiment import Experiment

ESTIMATORS = {
    "naive": vimco.Naive(),
    "VIMCO": vimco.VIMCO(),
    "VIMCO, arithmetic mean": vimco.VIMCO(vimco.arithmetic_mean_of_others),
    "VIMCO, f̂ = 0": vimco.VIMCO(vimco.left_out),
    "OVIS, one auxiliary sample": vimco.OVIS(1),
    "RWS (wake)": vimco.RWS(),
    "RWS (wake), centred": vimco.RWS(centred=True),
    "RLOO": vimco.RLOO(),
}


def main(path: str, samples: list[int]) -> None:
    """Measure, and print a table in Markdown."""
    run = vimco.load(path)
    model = run.model("best-average")
    batch = Experiment(run.config, run.dataset()).examples("test").batch(jnp.arange(24), jnp.float32)
    print("| proposal's signal-to-noise ratio | " + " | ".join(f"K = {K}" for K in samples) + " |")
    print("|---" * (len(samples) + 1) + "|")
    for name, estimator in ESTIMATORS.items():
        cells = []
        for K in samples:
            statistics = vimco.gradient_statistics(model, estimator, jax.random.key(0), batch, K, num_draws=200)
            cells.append(f"{statistics.of(lambda m: m.proposal).total_signal_to_noise:.2f}")
        print(f"| {name} | " + " | ".join(cells) + " |", flush=True)


if __name__ == "__main__":
    main(sys.argv[1], [int(word) for word in sys.argv[2:]])
