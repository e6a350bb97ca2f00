"""A trained model as one web page to draw on: it completes a digit, dreams, and scores the drawing.

`model.js` is the arithmetic, `page.js` and `page.css` the page around it, and `page.html` the template for these and
the weights. The file is self-contained: it needs no network and no server.
"""

import base64
import json
import math
import re
from pathlib import Path
from typing import Any

import numpy as np
from jinja2 import Environment

from vimco.errors import UsageError, printable
from vimco.models import MODELS
from vimco.report.page import policy
from vimco.runs.directory import Run, Weights
from vimco.runs.store import named_arrays
from vimco.studies.document import minus

FOLDER = Path(__file__).parent
NUM_EXAMPLES = 12
# The arrays that `model.js` computes with.
KNOWN = re.compile(
    r"(prior\.layers\.\d+|proposal\.chain\.layers\.\d+|likelihood)\.(weights\.\d+|bias)|"
    r"(centre_context|proposal\.centre|proposal\.centre_context|proposal\.centre_observation)\.mean"
)


def digit_page(run: Run, weights: Weights = "best", *, half: bool = False) -> str:
    """Return the page of a run. With `half` the weights are rounded to 16 bits, which makes it half as large."""
    family, model = MODELS[run.config.task], run.model(weights)
    if family.page is None:
        raise UsageError(f"The page shows sigmoid belief networks; the {family.title} is another kind and has no page.")
    what = family.page(model)
    refuse_unknown_arrays(model)
    context, _ = family.divide(np.zeros(math.prod(run.image_shape)), run.image_shape)
    examples = representatives(run.dataset().test, NUM_EXAMPLES)
    header = {
        "task": "structured" if context.size else "generative",  # a family of a plugin may have another name
        "shape": run.image_shape,
        "symmetric": run.config.symmetric,
        "examples": _base64(np.packbits(examples, axis=1).tobytes()),
        "reference": _reference(run, weights),
        "facts": _facts(run, what, weights, half),
    }
    return page_of_model(model, header, title=f"vimco: {printable(run.path.resolve().name)}", half=half)


def refuse_unknown_arrays(model: Any) -> None:
    """Refuse a model with arrays that `model.js` does not know."""
    unknown = [name for name in named_arrays(model) if not KNOWN.fullmatch(name)]
    if unknown:
        raise UsageError(
            f"The page shows the paper's sigmoid belief networks; this one also has {unknown[0]!r}, and has no page."
        )


def representatives(images: np.ndarray, number: int) -> np.ndarray:
    """Return images that represent all others: greedy k-medoids in Hamming distance, on at most 600 images.

    The image with the most ink comes first.
    """
    pixels = images[:: -(-len(images) // 600)].astype(np.float32)
    ink = pixels.sum(axis=1)
    distances = ink[:, None] + ink - 2 * pixels @ pixels.T
    to_chosen = np.full(len(pixels), np.inf)  # from each image to the nearest that was chosen
    chosen = []
    for _ in range(min(number, len(pixels))):
        chosen.append(int(np.minimum(to_chosen[:, None], distances).sum(axis=0).argmin()))
        to_chosen = np.minimum(to_chosen, distances[chosen[-1]])
    return pixels[sorted(chosen, key=lambda i: -ink[i])].astype(np.uint8)


def page_of_model(model: Any, header: dict[str, Any], *, title: str, half: bool) -> str:
    """Return the page of a model: the template filled with style, script, header and weights."""
    dtype = np.dtype("<f2" if half else "<f4")
    with np.errstate(over="ignore"):
        arrays = {name: np.asarray(leaf).astype(dtype) for name, leaf in named_arrays(model).items()}
    if not all(np.isfinite(array).all() for array in arrays.values()):
        raise UsageError(
            f"Some weights are too large for {8 * dtype.itemsize} bits, so there is no page of this model."
        )
    header = {**header, "dtype": dtype.name, "arrays": [(name, array.shape) for name, array in arrays.items()]}
    style = _source("page.css")
    script = _source("model.js") + "\n" + _source("page.js")
    template = Environment(autoescape=True, keep_trailing_newline=True).from_string(_source("page.html"))
    return template.render(
        policy=policy(script, style),
        title=title,
        style=style,
        script=script,
        header=json.dumps(header).replace("<", r"\u003c"),  # so that no text in it can end the element
        weights=_base64(b"".join(array.tobytes() for array in arrays.values())),
    )


def _facts(run: Run, what: str, weights: Weights, half: bool) -> list[tuple[str, str]]:
    """Return the description of the model on the page: terms and texts."""
    config = run.config
    proposal = "learned proposal" if config.proposal == "learned" else "samples from the prior"
    kept = {"best": "best by validation", "best-average": "best average", "latest": "latest"}[weights]
    return [
        ("Run", printable(run.path.resolve().name)),
        ("Model", f"sigmoid belief network {'-'.join(map(str, config.layers))}, {what}"),
        ("Trained with", f"{config.estimator}, K = {config.num_samples}, {proposal}"),
        ("Data", printable(run.data["name"])),
        ("Parameters", f"{kept}, update {run.update_of(weights):,}, {'16' if half else '32'} bits"),
    ]


def _reference(run: Run, weights: Weights) -> str:
    """Return a sentence on the test score of the same parameters, from its evaluation with the most samples, if any."""
    which = {"split": "test", "weights": weights, "update": run.update_of(weights)}
    found = [
        e
        for e in run.evaluations
        if all(e[name] == value for name, value in which.items()) and math.isfinite(e["negative_log_likelihood"])
    ]
    if not found:
        return ""
    best = max(found, key=lambda e: e["num_samples"])
    nats = minus(-best["negative_log_likelihood"], 1)
    return f"The test set has {nats} nats on average, by {best['num_samples']:,} samples."


def _source(name: str) -> str:
    return (FOLDER / name).read_text(encoding="utf-8")


def _base64(content: bytes) -> str:
    return base64.b64encode(content).decode()
