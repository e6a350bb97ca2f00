"""Print the noise of the proposal's gradient for mixed latents: `examples/mixed.py`, before and after training.

    python scripts/mixed_noise.py

With `log_score` the continuous latent is reparameterised, and only the discrete one has a learning signal. Without it
both have one, as if the continuous latent were discrete. The ratio is ‖mean‖ / √variance of the proposal's gradient
over 1000 sets of K = 8 samples of 64 points; pure noise has a ratio of 0.03.
"""

import contextlib
import io
import runpy
from pathlib import Path

import equinox as eqx
import jax
import jax.numpy as jnp
from jax.scipy.stats import norm

import vimco

with contextlib.redirect_stdout(io.StringIO()):
    EXAMPLE = runpy.run_path(str(Path(__file__).parents[1] / "examples" / "mixed.py"))
ESTIMATORS = {"naive": vimco.Naive(), "VIMCO": vimco.VIMCO()}


class Mixed(eqx.Module):
    """The model of the example, with the continuous latent reparameterised, or with a score for it."""

    proposal: dict[str, jax.Array]
    model: dict[str, jax.Array]
    is_reparameterised: bool = eqx.field(static=True)

    def importance_samples(self, key: jax.Array, batch: vimco.Batch, num_samples: int) -> vimco.ImportanceSamples:
        """Return draws (b, z) ~ Q(b | x) Q(z | b, x), as in the example."""
        x, q = batch.observation, self.proposal
        key_of_b, key_of_z = jax.random.split(key)
        logits = jnp.tanh(x @ q["hidden"] + q["bias"]) @ q["output"]
        b = jax.random.bernoulli(key_of_b, jax.nn.sigmoid(logits), (num_samples, *logits.shape)).astype(int)
        mean, scale = jnp.sum(q["slope"][b] * x, axis=-1) + q["shift"][b], jnp.exp(q["log_scale"])[b]
        z = mean + scale * jax.random.normal(key_of_z, b.shape)
        z = z if self.is_reparameterised else jax.lax.stop_gradient(z)
        log_score = EXAMPLE["log_bernoulli"](b, logits)
        log_joint = EXAMPLE["log_joint"](self.model, b, z, x)
        log_proposal = log_score + norm.logpdf(z, mean, scale)
        return vimco.ImportanceSamples(log_joint, log_proposal, log_score if self.is_reparameterised else None)


def main() -> None:
    """Measure, and print a table in Markdown."""
    first, x = EXAMPLE["p"], EXAMPLE["x"]
    moments = {"first parameters": first, "after 1000 updates": EXAMPLE["trained"](first, x[:4000])}
    print("| proposal's signal-to-noise ratio | " + " | ".join(moments) + " |")
    print("|---" * (len(moments) + 1) + "|")
    for name, estimator in ESTIMATORS.items():
        for how, is_reparameterised in (("a signal for both", False), ("`log_score`", True)):
            cells = []
            for p in moments.values():
                model = {part: p[part] for part in ("prior", "start", "direction")}
                proposal = {part: value for part, value in p.items() if part not in model}
                statistics = vimco.gradient_statistics(
                    Mixed(proposal, model, is_reparameterised),
                    estimator,
                    jax.random.key(0),
                    vimco.Batch(x[4000:4064]),
                    8,
                    1000,
                )
                cells.append(f"{statistics.of(lambda m: m.proposal).total_signal_to_noise:.2f}")
            print(f"| {name}, {how} | " + " | ".join(cells) + " |")


if __name__ == "__main__":
    main()
