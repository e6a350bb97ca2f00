"""The page to draw on, in a real browser: its arithmetic beside Python's, and the page under mouse, finger and keys."""

import base64
import json
import os
import re
import shutil
from pathlib import Path

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from browser import browser_program, open_page

from vimco import Batch, RunConfig, UsageError, load, multi_sample_bound, train
from vimco.models import generative_sbn, structured_sbn
from vimco.report.digit import digit_page, page_of_model, refuse_unknown_arrays, representatives

PROGRAM = browser_program()
needs_browser = pytest.mark.skipif(
    PROGRAM is None, reason="no chromium here: install Debian's package to test the page"
)

HEIGHT, WIDTH = 11, 8  # odd: the middle row belongs to the bottom half
MIDDLE = HEIGHT // 2 * WIDTH
KEY = jax.random.key_data(jax.random.key(2016 << 20))
RANDOM = np.random.default_rng(0)
IMAGE = RANDOM.integers(0, 2, HEIGHT * WIDTH).astype(np.uint8)
HOSTILE = "</script><script>document.title = 'broken'</script><img src=x onerror=alert(1)>&lt;{{weights}}"


def filled(build, dtype=np.float32):
    """Return the model that a function builds from a key, with large random arrays: no probability is near 1/2."""
    random = np.random.default_rng(5)
    shapes = eqx.filter_eval_shape(build, jax.random.key(0))
    return jax.tree.map(lambda a: random.normal(scale=0.8, size=a.shape).astype(dtype), shapes)


def model_of(kind, dtype=np.float32):
    """Return a small model, in the precision that the page stores."""
    mean, options = jnp.zeros(HEIGHT * WIDTH), {"symmetric": "symmetric" in kind}
    if kind.startswith("generative"):
        return filled(lambda key: generative_sbn(key, (7, 6, 9), mean, **options), dtype)
    layers, proposal = (7,) if "one layer" in kind else (7, 9), "prior" if "prior" in kind else "learned"
    halves = mean[MIDDLE:], mean[:MIDDLE]
    return filled(lambda key: structured_sbn(key, layers, *halves, proposal=proposal, **options), dtype)


def header_of(kind, name="a run"):
    examples = np.stack([IMAGE, 1 - IMAGE, np.roll(IMAGE, 3)])
    return {
        "task": kind.split()[0],
        "shape": (HEIGHT, WIDTH),
        "symmetric": "symmetric" in kind,
        "examples": base64.b64encode(np.packbits(examples, axis=1)).decode(),
        "reference": "",
        "facts": [("Run", name), ("Data", name)],
    }


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    with open_page(PROGRAM, tmp_path_factory.mktemp("profile")) as page:
        yield page


@pytest.fixture
def shown(browser, tmp_path):
    """Open the page of a kind of model, at the width of a desktop; return the browser's page."""

    def shown(kind, name="a run", half=False):
        path = tmp_path / "page.html"
        path.write_text(page_of_model(model_of(kind), header_of(kind, name), title=name, half=half), encoding="utf-8")
        browser.resize(1200, 900)
        browser.prefer("light")
        browser.open(path)
        browser.value("vimco.set({key: [20, 16]})")
        return browser

    return shown


def drawn(page):
    """Draw again with this image and key; return all draws as lists."""
    words = np.asarray(KEY).view(np.int32).tolist()
    page.value(f"vimco.set({{image: {IMAGE.tolist()}, key: {words}}})")
    return json.loads(
        page.value(
            "vimco.draws().then(draws => JSON.stringify(draws.map(d => ({...d, latents: d.latents.map(h => [...h]),"
            " logits: [...d.logits], probabilities: [...d.probabilities]}))))"
        )
    )


def double_precision(kind, half=False):
    """Return the same model in double precision, for Python."""
    model = model_of(kind, np.float16 if half else np.float32)
    return jax.tree.map(lambda a: jnp.asarray(a, jnp.float64), model)


def batch_of(kind):
    image = jnp.asarray(IMAGE[None], jnp.float64)
    if kind.startswith("generative"):
        return Batch(image, jnp.zeros((1, 0)))
    return Batch(image[:, MIDDLE:], image[:, :MIDDLE])


@needs_browser
@pytest.mark.parametrize(
    ("kind", "half"),
    [("structured symmetric", False), ("structured prior one layer", True), ("generative", False)],
)
def test_log_probabilities_are_those_of_python(kind, half, shown, float64):
    """The same key gives the same bits, so all 500 samples and their weights agree, not only their averages."""
    page = shown(kind, half=half)
    page.value("document.querySelectorAll('#modes input')[1].click()")
    draws = drawn(page)
    key, model = jax.random.wrap_key_data(KEY), double_precision(kind, half)
    samples = eqx.filter_jit(model.importance_samples)(key, batch_of(kind), 500)
    assert len(draws) == 500
    assert np.ptp(samples.log_weights) > 3  # so that the comparison is not trivial
    np.testing.assert_allclose([d["logJoint"] for d in draws], samples.log_joint[:, 0], rtol=0, atol=1e-4)
    np.testing.assert_allclose([d["logProposal"] for d in draws], samples.log_proposal[:, 0], rtol=0, atol=1e-4)
    means = page.value("document.querySelector('#bounds svg').getAttribute('aria-label')")
    means = [float(number) for number in re.findall(r"(\S+) nats", means.replace("−", "-"))]
    expected = [samples.log_weights.reshape(-1, K).T for K in (1, 5, 50)]
    expected = [float(multi_sample_bound(log_weights).mean()) for log_weights in expected]
    np.testing.assert_allclose(means, expected, atol=0.006)  # shown with two decimals
    assert means == sorted(means)


@needs_browser
@pytest.mark.parametrize("kind", ["structured prior one layer", "generative"])
def test_completions_and_dreams_are_those_of_python(kind, shown, float64):
    """The first is the draw of `model.sample`: hidden units, probabilities, and pixels."""
    page, key, batch = shown(kind), jax.random.wrap_key_data(KEY), batch_of(kind)
    draws, model = drawn(page), double_precision(kind)
    latents, observation = eqx.filter_jit(model.sample)(key, batch.context)
    assert draws[0]["latents"] == [layer[0, 0].astype(int).tolist() for layer in latents]
    expected = model.observation_probabilities(latents)[0, 0]
    np.testing.assert_allclose(draws[0]["probabilities"], expected, rtol=0, atol=1e-6)
    page.value("document.querySelectorAll('#ink input')[1].click()")
    bottom = pictures(page)[0].ravel()[-observation.shape[-1] :]
    np.testing.assert_array_equal(bottom != 0xFFFFFFFF, observation[0, 0] == 1)  # what is not white is ink
    if kind == "generative":  # all draws have the deepest layer of the dream that is chosen, the first
        assert all(draw["latents"][0] == draws[0]["latents"][0] for draw in draws)


def pictures(page, selector="#gallery canvas"):
    """Return the pixels of canvases: rows of 32 bits each."""
    page.value("vimco.draws().then(() => 1)")
    pixels = f"new Uint32Array(c.getContext('2d').getImageData(0, 0, {WIDTH}, {HEIGHT}).data.buffer)"
    values = page.value(f"[...document.querySelectorAll('{selector}')].map(c => [...{pixels}])")
    return np.array(values).reshape(-1, HEIGHT, WIDTH)


def image(page):
    return np.array(page.value("[...vimco.image]")).reshape(HEIGHT, WIDTH)


@needs_browser
def test_strokes_change_the_completions_and_are_undone(shown):
    page = shown("structured")
    before = pictures(page)
    opening = image(page)
    page.drag([page.place("#pad", x, y) for x, y in ((0.05, 0.05), (0.5, 0.3), (0.9, 0.9))])
    after = pictures(page)
    assert len(before) == len(after) == 12
    assert (before[:, 5:] != after[:, 5:]).any(
        axis=(1, 2)
    ).sum() >= 3  # of the bottom halves, all from new hidden units
    stroke = image(page)
    assert stroke[0, 0] == 1
    assert stroke[:5].sum() >= 5
    assert stroke[5:].sum() == 0  # the bottom half is the model's, and the first stroke cleared the example
    page.drag([page.place("#undo")])
    assert (image(page) == opening).all()
    assert (pictures(page) == before).all()  # the same drawing and the same random numbers
    page.drag([page.place("#clear")])
    assert image(page).sum() == 0
    assert (pictures(page) != before).any()


@needs_browser
def test_the_pen_has_a_thickness_and_an_eraser(shown):
    page = shown("structured")
    sizes = []
    for thickness in (1, 4):
        page.value(f"document.getElementById('thickness').value = {thickness}")
        page.drag([page.place("#clear")])
        page.drag([page.place("#pad", 0.5, 0.2)])
        sizes.append(int(image(page).sum()))
    assert sizes[0] == 1 < 9 <= sizes[1]
    page.drag([page.place("#erase")])
    page.drag([page.place("#pad", 0.5, 0.2)])
    assert image(page).sum() == 0


@needs_browser
def test_again_draws_others_and_a_choice_shows_one(shown):
    page = shown("structured")
    before, drawing = pictures(page), image(page)
    page.drag([page.place("section:not([hidden]) .again")])
    again = pictures(page)
    assert (again != before).any()
    assert (image(page) == drawing).all()
    grey = pictures(page, "#pad")
    page.drag([page.place("#gallery button:nth-child(3)")])
    assert (pictures(page, "#pad") != grey).any()
    assert (pictures(page, "#pad, #gallery button[aria-pressed=true] canvas") == again[2]).all()
    assert len(np.unique(again)) > 10
    page.drag([page.place("#ink label:nth-child(2)")])
    assert len(np.unique(pictures(page))) == 3  # paper, and ink of the two halves: nothing in between


@needs_browser
def test_the_pointer_reads_a_pixel(shown):
    page = shown("structured")
    pictures(page)
    assert " of 48 pixels are uncertain" in page.value("document.getElementById('readout').textContent")
    page._mouse("mouseMoved", *page.place("#mean", 0.99, 0.99), buttons=0)
    assert f"row {HEIGHT}, column {WIDTH}: ink in " in page.value("document.getElementById('readout').textContent")
    page._mouse("mouseMoved", *page.place("h1"), buttons=0)
    assert "uncertain" in page.value("document.getElementById('readout').textContent")
    page.swipe([page.place("#doubt", 0.01, 0.99)])  # a finger has no place to point from: what it tapped stays
    assert f"row {HEIGHT}, column 1: ink in " in page.value("document.getElementById('readout').textContent")


@needs_browser
def test_the_script_in_the_documentation_works_as_printed(shown):
    text = (Path(__file__).parents[1] / "docs" / "how-to" / "digit-page.md").read_text()
    (script,) = re.findall(r"```js\n(.*?)```", text, re.DOTALL)
    first, second, third = (line.split(";")[0] for line in script.splitlines())
    page = shown("structured")
    page.value("document.querySelectorAll('#modes input')[1].click()")
    of_page, of_model = page.value(
        f"(async () => {{ const image = {IMAGE.tolist()}; {first}; const draws = [{second}, {third}];"
        " return draws.map(d => [d.latents.map(h => [...h]), d.logJoint, d.logProposal]); })()"
    )
    assert of_page == of_model
    assert len(of_page[0]) == 2
    assert max(map(max, of_page[0])) == 1


@needs_browser
def test_a_digit_is_drawn_and_scored_by_the_keyboard_alone(shown):
    page = shown("structured")
    before = pictures(page)
    page.press("Tab")  # the two things to do
    page.press("Tab")
    assert page.value("document.activeElement.id") == "pad"
    assert page.value("!document.getElementById('cursor').hidden")
    page.press(" ")
    assert image(page).sum() >= 1
    page.press("ArrowLeft")
    inked = image(page).sum()
    page.press("ArrowUp", shift=True)
    assert image(page).sum() > inked
    assert (pictures(page) != before).any()
    page.press("z", control=True)
    page.press("z", control=True)
    assert (pictures(page) == before).all()
    page.press("Tab", shift=True)
    page.press("ArrowRight")  # the other thing to do
    assert page.value("document.querySelectorAll('#modes input')[1].checked")
    pictures(page)
    assert re.match(r"log P\(x \| c\) ≳ −\d+\.\d\d nats", page.value("document.getElementById('status').textContent"))
    page.value("document.querySelector('#examples button').focus()")
    page.press("ArrowRight")
    page.press("Enter")
    assert (image(page).ravel() == 1 - IMAGE).all()


@needs_browser
def test_units_of_the_deepest_layer_are_switched(shown):
    page = shown("generative")
    before = pictures(page)
    states = "[...document.querySelectorAll('#units button')].map(b => b.getAttribute('aria-pressed'))"
    first = page.value(states)
    assert len(first) == 7
    page.value("document.querySelector('#units button').focus()")
    page.press("ArrowRight")
    page.press(" ")
    changed = page.value(states)
    assert [i for i in range(7) if first[i] != changed[i]] == [1]
    after = pictures(page)
    assert (after[1:] == before[1:]).all()  # the other dreams stay as they are
    page.drag([page.place("#restore")])
    assert page.value(states) == first
    assert (pictures(page) == before).all()


@needs_browser
def test_a_generative_model_explains_a_digit(shown):
    page = shown("generative")
    page.value("document.querySelectorAll('#modes input')[1].click()")
    before = pictures(page, "#bounds-panel:not([hidden]) ~ section #gallery canvas")
    assert page.value("document.querySelectorAll('#bars rect').length") == 50
    weights = page.value(
        "[...document.querySelectorAll('#bars title')].map(t => parseFloat(t.textContent.split(': ')[1]))"
    )
    assert sum(weights) == pytest.approx(100, abs=3)  # each is rounded
    captions = page.value("[...document.querySelectorAll('#gallery small')].map(c => parseFloat(c.textContent))")
    assert captions == sorted(weights, reverse=True)[:12]
    page.drag([page.place("#pad", 0.5, y) for y in (0.1, 0.9)])
    assert (pictures(page) != before).any()
    assert image(page)[-2, WIDTH // 2] == 1  # all of the image is the reader's


@needs_browser
def test_a_finger_draws_on_a_phone_and_nothing_is_wider_than_it(shown):
    for kind in ("structured", "generative"):
        page = shown(kind)
        page.resize(375)
        for mode in (0, 1):
            page.value(f"document.querySelectorAll('#modes input')[{mode}].click()")
            pictures(page)
            assert page.value("document.documentElement.scrollWidth") <= 375
        before = pictures(page)
        page.swipe([page.place("#pad", x, 0.2) for x in (0.2, 0.5, 0.8)])
        assert image(page)[2, 1:7].all()
        assert (pictures(page) != before).any()


@needs_browser
def test_the_colours_follow_the_reader(shown):
    page = shown("structured")
    light = pictures(page)
    page.prefer("dark")
    assert (pictures(page) != light).any()


@needs_browser
def test_nothing_is_fetched_nothing_complains_and_names_stay_text(shown):
    page = shown("structured", name=HOSTILE)
    page.value("document.querySelectorAll('#modes input')[1].click()")
    pictures(page)
    assert page.complaints() == []
    assert [re.match("[a-z]+:", address)[0] for address in page.requests()] == ["file:"]
    assert page.value("document.title") == HOSTILE
    assert page.value("[...document.querySelectorAll('dd')].map(d => d.textContent)") == [HOSTILE, HOSTILE]
    assert page.value("document.images.length") == 0
    # The policy holds for whatever might slip in: a request is refused before it is made.
    assert page.value("fetch('data:,x').then(() => 'fetched', () => 'refused')") == "refused"


@pytest.mark.parametrize("kind", ["structured", "generative"])
def test_the_paper_s_model_fits_into_three_megabytes(kind):
    layers, mean = (200, 200, 200), jnp.zeros(784)
    if kind == "generative":
        model = filled(lambda key: generative_sbn(key, layers, mean))
    else:
        model = filled(lambda key: structured_sbn(key, layers, mean[:392], mean[:392]))
    sizes = [len(page_of_model(model, header_of(kind), title="", half=half).encode()) for half in (False, True)]
    assert sizes[0] < 3e6
    assert sizes[1] < 0.52 * sizes[0]


@pytest.mark.parametrize(
    ("name", "weights", "megabytes", "score"),
    [
        ("halves", "best-average", 0.6, r"\u221246.3 nats on average, by 100 "),
        ("digits", "best", 1.4, r"\u221292.5 nats"),
    ],
)
def test_the_models_of_the_site_make_small_pages(name, weights, megabytes, score):
    text = digit_page(load(Path(__file__).parent.parent / "docs/models" / name), weights, half=True)
    assert len(text.encode()) < 1e6 * megabytes
    assert f"The test set has {score}" in text  # with a minus sign, in JSON


def test_a_page_of_an_odd_name_and_of_no_number(tmp_path):
    """A name of undecodable bytes is escaped; an evaluation that is not finite gives no sentence."""
    folder = tmp_path / os.fsdecode(b"caf\xe9")
    shutil.copytree(Path(__file__).parent.parent / "docs/models/halves", folder)
    summary = folder / "summary.json"
    number = re.compile(r'"negative_log_likelihood": [\d.]+')
    assert number.search(summary.read_text())
    summary.write_text(number.sub('"negative_log_likelihood": null', summary.read_text()))
    text = digit_page(load(folder), "best-average", half=True)
    assert "<title>vimco: caf\\udce9</title>" in text
    assert text.encode()
    assert "nats on average" not in text.partition('id="weights"')[0].partition('id="header"')[2]


def test_what_has_no_page_is_refused_in_a_sentence(tmp_path):
    shape = {"data": "synthetic", "num_samples": 2, "updates": 1, "layers": (3,)}
    for task, options, message in (
        ("gaussian", ("hidden=2",), "The page shows sigmoid belief networks; the Gaussian model is another kind"),
        ("structured", ("deterministic=2",), "this model has deterministic ones, and has no page"),
    ):
        run = train(RunConfig(task=task, task_options=options, **shape), tmp_path / task)
        with pytest.raises(UsageError, match=message):
            digit_page(run, "latest")
    for kind in ("generative", "structured", "structured prior"):
        refuse_unknown_arrays(model_of(kind))
    model = model_of("generative")
    other = eqx.tree_at(lambda m: m.likelihood, model, eqx.nn.LSTMCell(2, 2, key=jax.random.key(0)))
    with pytest.raises(UsageError, match=r"this one also has 'likelihood.weight_ih', and has no page"):
        refuse_unknown_arrays(other)
    large = eqx.tree_at(lambda m: m.likelihood.bias, model, jnp.full_like(model.likelihood.bias, 1e5))
    with pytest.raises(UsageError, match="too large for 16 bits"):
        page_of_model(large, header_of("generative"), title="", half=True)


def test_representatives_are_near_to_all_and_the_boldest_first():
    kinds = RANDOM.integers(0, 2, (3, 40))
    images = np.concatenate([np.repeat(kinds, 5, axis=0)]).astype(np.uint8)
    chosen = representatives(images[RANDOM.permutation(15)], 3)
    assert {row.tobytes() for row in chosen} == {row.astype(np.uint8).tobytes() for row in kinds}
    assert sorted(chosen.sum(axis=1), reverse=True) == chosen.sum(axis=1).tolist()
    assert len(representatives(images[:2], 12)) == 2
