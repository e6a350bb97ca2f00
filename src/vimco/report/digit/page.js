// The page: the drawing, the requests to the model, and the pictures of its answers. The arithmetic is in model.js.

const SHOWN = 12; // draws in the gallery
const MANY = 500; // draws in all
const SAMPLES = [1, 5, 50]; // values of K whose bounds are compared
const FIRST = Math.max(...SAMPLES); // samples whose weights are shown
const SLICE = 10; // milliseconds of work between two pictures of it

const $ = (id) => document.getElementById(id);
const header = JSON.parse($("header").textContent);
const model = new Network(header, decodedArrays(header, $("weights").textContent));
const examples = decodedExamples(header);
const [height, width] = header.shape;
const size = height * width;
const condition = model.isStructured ? "x | c" : "x";

// Two things to do with each kind of model. `editable` is the number of pixels, from the top, that a pen may change.
const MODES = model.isStructured
  ? [
      {
        name: "complete",
        label: "Complete a digit",
        editable: model.middle,
        title: "Draw the top half. The model finishes the digit.",
        lead:
          "Each completion comes from its own draw of the hidden units, h ~ P(h | c). Where your strokes could become " +
          "several digits, you will see several.",
        gallery: "Twelve completions",
        galleryHint: "Each from its own draw of h. Choose one to see it on your drawing.",
        mean: "Over many draws",
        hint: "Draw with mouse, finger or pen.",
        halves: ["yours", "the model’s"],
      },
      {
        name: "score",
        label: "Score a digit",
        isScored: true,
        editable: size,
        title: "Draw a whole digit. How likely is its bottom half?",
        lead:
          "The log-probability of your bottom half x, given your top half c, is bounded from below by K samples of the " +
          "hidden units. The more samples, the tighter the bound.",
        gallery: "Twelve explanations",
        galleryHint: "P(x | h) for the twelve heaviest of the first fifty samples, and the weight of each.",
        mean: "Weighted mean",
        hint: "Draw both halves: with mouse, finger or pen.",
        halves: ["given: c", "scored: x"],
      },
    ]
  : [
      {
        name: "dream",
        label: "Dream",
        isDream: true,
        editable: 0,
        title: "The model dreams. Switch its units.",
        lead:
          "Each dream is a draw of the hidden units from the prior, h ~ P(h), the deepest layer first. Choose a dream, " +
          "then switch units of its deepest layer by hand.",
        gallery: "Twelve dreams",
        galleryHint: "Each from its own draw of h. Choose one to switch its units.",
        mean: "The layers below, drawn many times",
      },
      {
        name: "score",
        label: "Explain a digit",
        isScored: true,
        editable: size,
        title: "Draw a digit. The model explains it.",
        lead:
          "The proposal Q(h | x) guesses hidden units for your digit, the model draws it again from them, and K guesses " +
          "together bound log P(x) from below. The more guesses, the tighter the bound.",
        gallery: "Twelve reconstructions",
        galleryHint: "P(x | h) for the twelve heaviest of the first fifty samples, and the weight of each.",
        mean: "Weighted mean",
        hint: "Draw with mouse, finger or pen.",
      },
    ];

const state = {
  mode: MODES[0],
  image: examples[Math.floor(examples.length / 3)]?.slice() ?? new Uint8Array(size),
  isUntouched: examples.length > 0, // the example that the page opens with: the first stroke clears it
  history: [],
  key: crypto.getRandomValues(new Int32Array(2)), // of all draws: the same key repeats them
  picked: null, // the draw that is shown large; null: the mean
  switched: new Map(), // deepest layers that were changed by hand, by the number of the dream
  isPixels: false, // show sampled pixels instead of probabilities
  isErasing: false,
  cursor: { row: Math.floor(height / 4), column: Math.floor(width / 2), isShown: false },
};

// ---- The work: draws for the present drawing, the first of them at once, the rest between pictures ----

let work = null;
let frame = null;
let waiting = [];

/** Draw again after a change, with the same random numbers unless the key has changed. */
function restart() {
  work = { given: model.given(state.image), draws: [], dreams: [], plotted: 0, average: work?.average };
  if (state.mode.isDream) {
    state.picked ??= 0;
    for (let number = 0; number < SHOWN; number++) work.dreams.push(dream(number));
    showUnits(work.dreams[state.picked].latents[0]);
  }
  frame ??= requestAnimationFrame(step);
}

function step() {
  frame = null;
  const atLeast = work.draws.length + (work.draws.length ? 1 : state.mode.isScored ? FIRST : SHOWN);
  const deadline = performance.now() + SLICE;
  while (work.draws.length < MANY && (work.draws.length < atLeast || performance.now() < deadline)) {
    work.draws.push(drawing(work.draws.length));
  }
  show();
  if (work.draws.length < MANY) {
    frame = requestAnimationFrame(step);
  } else {
    announce();
    waiting.splice(0).forEach((resolve) => resolve());
  }
}

const withProbabilities = (draw) => ({ ...draw, probabilities: draw.logits.map(sigmoid) });

/** Draw `number` of those that the mean is taken over. */
function drawing(number) {
  if (state.mode.isScored) {
    const draw = model.importanceSample(state.key, number, work.given);
    return withProbabilities({ ...draw, logWeight: draw.logJoint - draw.logProposal });
  }
  const fixed = state.mode.isDream ? [work.dreams[state.picked].latents[0]] : [];
  const latents = model.priorSample(foldIn(state.key, 0), number, work.given, fixed);
  return withProbabilities({ latents, logits: model.observationLogits(latents), logWeight: 0 });
}

function dream(number) {
  const fixed = state.switched.has(number) ? [state.switched.get(number)] : [];
  const latents = model.priorSample(foldIn(state.key, 0), number, work.given, fixed);
  return withProbabilities({ latents, logits: model.observationLogits(latents) });
}

/** The mean of P(x = 1 | h) over all draws so far, by their weights. */
function mean() {
  const weights = normalizedWeights(work.draws.map((draw) => draw.logWeight));
  const sum = new Float64Array(size - model.middle);
  work.draws.forEach(({ probabilities }, k) => {
    if (weights[k] > 1e-9) probabilities.forEach((p, i) => (sum[i] += weights[k] * p));
  });
  return sum;
}

// ---- Pictures ----

let colours = {};

function readColours() {
  const style = getComputedStyle(document.documentElement);
  for (const name of ["paper", "ink", "model", "doubt"]) {
    const digits = style.getPropertyValue(`--${name}`).trim().slice(1);
    colours[name] = [0, 2, 4].map((at) => parseInt(digits.slice(at, at + 2), 16));
  }
}

/** Paints one image: `levels` from 0, the paper, to 1, the colour that `colourOf` gives for a pixel. */
function paint(canvas, levels, colourOf) {
  const context = canvas.getContext("2d");
  const picture = context.createImageData(width, height);
  for (let i = 0; i < size; i++) {
    const colour = colourOf(i);
    for (let c = 0; c < 3; c++) {
      picture.data[4 * i + c] = colours.paper[c] + levels[i] * (colour[c] - colours.paper[c]);
    }
    picture.data[4 * i + 3] = 255;
  }
  context.putImageData(picture, 0, 0);
}

/** The context as it was drawn, followed by values for the observation. */
function withContext(values) {
  const levels = new Float64Array(size);
  levels.set(state.image.subarray(0, model.middle));
  levels.set(values, model.middle);
  return levels;
}

const byHand = () => colours.ink;
const ofBoth = (i) => (i < model.middle ? colours.ink : colours.model);

/** Pixels have random numbers of their own: layer i of a scored draw has those of foldIn(state.key, i). */
function levelsOf(draw, number) {
  if (!state.isPixels) return draw.probabilities;
  return sampleBernoulli(foldIn(state.key, state.mode.isScored ? -1 : 1), number, draw.logits);
}

function show() {
  const average = mean();
  const shown = state.mode.isDream ? work.dreams : work.draws;
  const order = [...shown.keys()].slice(0, state.mode.isScored ? FIRST : SHOWN);
  if (state.mode.isScored) {
    const logWeights = work.draws.map((draw) => draw.logWeight);
    const weights = normalizedWeights(logWeights.slice(0, FIRST));
    if (work.draws.length === MANY || work.draws.length >= 2 * work.plotted) {
      work.plotted = work.draws.length; // at first, at each doubling, and at the end: hundreds of dots are slow
      showBounds(logWeights);
      showBars(weights);
    }
    order.sort((a, b) => weights[b] - weights[a]);
    tiles.forEach(({ caption }, t) => (caption.textContent = percent(weights[order[t]])));
    paint($("pad"), state.image, byHand);
  } else {
    const { picked } = state;
    paint($("pad"), withContext(picked === null ? average : levelsOf(shown[picked], picked)), ofBoth);
  }
  tiles.forEach(({ canvas, button }, t) => {
    paint(canvas, withContext(levelsOf(shown[order[t]], order[t])), ofBoth);
    button.setAttribute("aria-pressed", String(state.picked === t));
  });
  paint($("mean"), withContext(average), ofBoth);
  const doubts = withContext(average.map(entropy));
  paint($("doubt"), doubts, (i) => (i < model.middle ? mixed(colours.ink, 0.25) : colours.doubt));
  $("count").textContent = `${work.draws.length} draws`;
  $("undo").disabled = state.history.length === 0;
  $("restore").disabled = !state.switched.has(state.picked);
  work.average = average;
  showReadout(null);
}

const mixed = (colour, share) => colour.map((c, i) => share * c + (1 - share) * colours.paper[i]);

/** The entropy of a pixel in bits: 0 is certainty, 1 a coin toss. */
const entropy = (p) => (p <= 0 || p >= 1 ? 0 : -(p * Math.log2(p) + (1 - p) * Math.log2(1 - p)));

function showReadout(i) {
  const { average } = work;
  if (!average) return;
  if (i === null) {
    const unsure = average.filter((p) => p > 0.1 && p < 0.9).length;
    const text = ` of ${average.length} pixels are uncertain: ink with a probability between 10 and 90 %.`;
    $("readout").replaceChildren(strong(String(unsure)), text, " Point at a pixel or tap it to read its value.");
  } else {
    const p = i < model.middle ? state.image[i] : average[i - model.middle];
    const where = `row ${Math.floor(i / width) + 1}, column ${(i % width) + 1}`;
    const what = i < model.middle ? "yours" : `ink in ${number(100 * p, 1)} % of draws, ${entropy(p).toFixed(2)} bits`;
    $("readout").replaceChildren(strong(p.toFixed(2)), `${where}: ${what}.`);
  }
}

function announce() {
  $("status").textContent = state.mode.isScored
    ? `${$("likelihood").textContent}. ${$("effective").textContent}.`
    : `${state.mode.gallery} drawn. ${$("readout").textContent}`;
}

// ---- Plots ----

const percent = (share) => `${number(100 * share, share < 0.1 ? 1 : 0)} %`;
const number = (value, digits = 2) => value.toFixed(digits).replace("-", "−");

/** An empty picture of the width of its box, and a function that adds to it. */
function plot(box, plotHeight) {
  const across = Math.max(box.clientWidth, 240);
  const element = (tag, attributes, text = "") => {
    const made = document.createElementNS("http://www.w3.org/2000/svg", tag);
    for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
    made.textContent = text;
    return made;
  };
  const svg = element("svg", { viewBox: `0 0 ${across} ${plotHeight}`, height: plotHeight, role: "img" });
  box.replaceChildren(svg);
  return {
    across,
    svg,
    add(tag, attributes, text) {
      const made = element(tag, attributes, text);
      svg.append(made);
      return made;
    },
  };
}

/** About `most` round numbers from low to high. */
function ticks(low, high, most) {
  const rough = (high - low) / most;
  const power = 10 ** Math.floor(Math.log10(rough));
  const spacing = [1, 2, 5, 10].map((m) => m * power).find((s) => s >= rough);
  const first = Math.ceil(low / spacing);
  return Array.from({ length: Math.floor(high / spacing) - first + 1 }, (_, i) => (first + i) * spacing);
}

/** A row of dots for each K: every dot the bound of K samples, every bar the mean of its row.
 *
 * Groups of 50 are made of whole groups of 5, so each row's mean is at least that of the row above (Jensen). */
function showBounds(logWeights) {
  const rows = SAMPLES.map((K) => {
    const groups = Array.from({ length: Math.floor(logWeights.length / K) }, (_, g) => logWeights.slice(g * K, g * K + K));
    const bounds = groups.map(multiSampleBound);
    return { K, bounds, mean: bounds.reduce((sum, b) => sum + b, 0) / bounds.length };
  });
  const best = multiSampleBound(logWeights);
  const sorted = [...logWeights].sort((a, b) => a - b);
  const low = sorted[Math.floor(0.05 * sorted.length)];
  const high = sorted.at(-1);
  const margin = 0.04 * (high - low) + 0.2;
  const rowHeight = 46;
  const { across, add, svg } = plot($("bounds"), rowHeight * rows.length + 30);
  const [left, right] = [62, across - 74];
  const x = (value) => left + ((Math.max(value, low) - low + margin) / (high - low + 2 * margin)) * (right - left);
  const bottom = rowHeight * rows.length;
  const marks = ticks(low - margin, high + margin, (right - left) / 70);
  const digits = Math.max(0, -Math.floor(Math.log10(marks[1] - marks[0]) + 1e-9)); // of their spacing
  for (const tick of marks) {
    const at = left + ((tick - low + margin) / (high - low + 2 * margin)) * (right - left);
    add("line", { x1: at, x2: at, y1: 4, y2: bottom, stroke: "var(--rule)" });
    add("text", { x: at, y: bottom + 18, "text-anchor": "middle" }, number(tick, digits));
  }
  add("line", { x1: x(best), x2: x(best), y1: 4, y2: bottom, stroke: "var(--ink)", "stroke-dasharray": "3 3" });
  rows.forEach(({ K, bounds, mean }, r) => {
    const middle = rowHeight * (r + 0.5) + 2;
    bounds.forEach((bound, g) => {
      if (bound < low) return;
      const y = middle + (((g * 0.618034) % 1) - 0.5) * (rowHeight - 18); // spread out, always in the same way
      add("circle", { cx: x(bound), cy: y, r: r ? 3 : 2, fill: "var(--model)", "fill-opacity": [0.28, 0.45, 0.75][r] });
    });
    add("rect", { x: x(mean) - 1.5, y: middle - 17, width: 3, height: 34, rx: 1.5, fill: "var(--doubt)" });
    add("text", { x: 0, y: middle + 4, fill: "var(--ink)" }, `K = ${K}`);
    add("text", { x: across, y: middle + 4, "text-anchor": "end", fill: "var(--ink)", "font-size": 14 }, number(mean));
  });
  svg.setAttribute("aria-label", rows.map(({ K, mean }) => `K = ${K}: ${number(mean)} nats`).join("; "));
  $("likelihood").replaceChildren(`log P(${condition}) ≳ `, strong(number(best)), " nats");
}

/** A bar for the weight of each sample. */
function showBars(weights) {
  const [top, plotHeight] = [12, 96];
  const { across, add, svg } = plot($("bars"), plotHeight + 20);
  const largest = Math.max(...weights);
  const pitch = across / weights.length;
  add("line", { x1: 0, x2: across, y1: plotHeight, y2: plotHeight, stroke: "var(--rule)" });
  weights.forEach((weight, k) => {
    const length = Math.max((weight / largest) * (plotHeight - top), 0.75);
    const bar = add("rect", {
      x: k * pitch + pitch * 0.12, y: plotHeight - length, width: pitch * 0.76, height: length, rx: 1.5,
      fill: "var(--model)",
    });
    bar.append(document.createElementNS("http://www.w3.org/2000/svg", "title"));
    bar.firstChild.textContent = `Sample ${k + 1}: ${percent(weight)}`;
  });
  const heaviest = weights.indexOf(largest);
  const side = heaviest > weights.length * 0.8 ? "end" : heaviest < weights.length * 0.1 ? "start" : "middle";
  add("text", { x: (heaviest + 0.5) * pitch, y: 8, "text-anchor": side, fill: "var(--ink)" }, percent(largest));
  add("text", { x: 0, y: plotHeight + 16 }, "sample 1");
  add("text", { x: across, y: plotHeight + 16, "text-anchor": "end" }, `sample ${weights.length}`);
  const effective = 1 / weights.reduce((sum, w) => sum + w * w, 0);
  svg.setAttribute("aria-label", `The largest weight is ${percent(largest)}.`);
  $("effective").replaceChildren("effective sample size ", strong(number(effective, 1)), ` of ${weights.length}`);
}

function strong(text) {
  const element = document.createElement("strong");
  element.textContent = text;
  return element;
}

// ---- Drawing, by pointer and by keyboard ----

const pad = $("pad");
let pen = null; // the pointer that draws, while it is down
let last = null; // its last position, in pixels

/** Remember the drawing before a change, for undo. */
function remember() {
  state.history.push(state.image.slice());
  if (state.history.length > 200) state.history.shift();
  if (state.isUntouched) state.image.fill(0);
  state.isUntouched = false;
  showHint();
}

function undo() {
  if (!state.history.length) return;
  state.image = state.history.pop();
  restart();
}

/** Sets every pixel within half the pen's thickness of the line from a to b. */
function line(a, b, value) {
  const radius = $("thickness").value / 2;
  const [dx, dy] = [b.x - a.x, b.y - a.y];
  const squared = dx * dx + dy * dy;
  for (let i = 0; i < state.mode.editable; i++) {
    const [x, y] = [(i % width) + 0.5, Math.floor(i / width) + 0.5];
    const share = squared ? Math.min(1, Math.max(0, ((x - a.x) * dx + (y - a.y) * dy) / squared)) : 0;
    const distance = Math.hypot(x - a.x - share * dx, y - a.y - share * dy);
    const isUnderPen = Math.floor(b.x) === i % width && Math.floor(b.y) === Math.floor(i / width);
    if (distance <= radius || isUnderPen) state.image[i] = value;
  }
  restart();
}

function position(event) {
  const box = pad.getBoundingClientRect();
  return { x: ((event.clientX - box.left) / box.width) * width, y: ((event.clientY - box.top) / box.height) * height };
}

// The right button and the other end of a pen erase.
const inkOf = (event) => (state.isErasing || event.buttons & (2 | 32) ? 0 : 1);

pad.addEventListener("pointerdown", (event) => {
  if (!state.mode.editable || pen !== null) return;
  pen = event.pointerId;
  pad.setPointerCapture(pen);
  remember();
  moveCursor(null);
  last = position(event);
  line(last, last, inkOf(event));
});
pad.addEventListener("pointermove", (event) => {
  if (event.pointerId !== pen) return;
  const between = event.getCoalescedEvents?.() ?? [];
  for (const point of between.length ? between : [event]) {
    const next = position(point);
    line(last, next, inkOf(event));
    last = next;
  }
});
for (const end of ["pointerup", "pointercancel"]) {
  pad.addEventListener(end, (event) => (pen = event.pointerId === pen ? null : pen));
}
pad.addEventListener("contextmenu", (event) => event.preventDefault());

/** Puts the keyboard's pen somewhere; null hides it. */
function moveCursor(to) {
  Object.assign(state.cursor, to, { isShown: to !== null });
  const { row, column, isShown } = state.cursor;
  const box = $("cursor");
  box.hidden = !isShown;
  box.style.left = `${(100 * column) / width}%`;
  box.style.top = `${(100 * row) / height}%`;
  box.style.width = `${100 / width}%`;
  box.style.height = `${100 / height}%`;
}

const ARROWS = { ArrowLeft: [0, -1], ArrowRight: [0, 1], ArrowUp: [-1, 0], ArrowDown: [1, 0] };

pad.addEventListener("keydown", (event) => {
  const { row, column } = state.cursor;
  const point = (r, c) => ({ x: c + 0.5, y: r + 0.5 });
  if ((event.ctrlKey || event.metaKey) && event.key.toLowerCase() === "z") {
    undo();
  } else if (event.ctrlKey || event.metaKey || event.altKey || !state.mode.editable) {
    return;
  } else if (event.key in ARROWS) {
    const [down, across] = ARROWS[event.key];
    const to = {
      row: Math.min(Math.max(row + down, 0), state.mode.editable / width - 1),
      column: Math.min(Math.max(column + across, 0), width - 1),
    };
    moveCursor(to);
    if (event.shiftKey) {
      remember();
      line(point(row, column), point(to.row, to.column), state.isErasing ? 0 : 1);
    }
  } else if ([" ", "Enter", "Delete", "Backspace"].includes(event.key)) {
    remember();
    moveCursor({});
    line(point(row, column), point(row, column), state.isErasing || event.key.length > 5 ? 0 : 1);
  } else {
    return;
  }
  event.preventDefault();
});
pad.addEventListener("focus", () => moveCursor(state.mode.editable && pad.matches(":focus-visible") ? {} : null));
pad.addEventListener("blur", () => moveCursor(null));

// ---- Controls ----

/** A row of choices, one of them selected. */
function choice(box, labels, chosen) {
  labels.forEach((label, i) => {
    const input = Object.assign(document.createElement("input"), { type: "radio", name: box.id, checked: i === 0 });
    input.addEventListener("change", () => chosen(i));
    const wrapper = document.createElement("label");
    wrapper.append(input, label);
    box.append(wrapper);
  });
}

/** Within the box arrow keys move from button to button, and Tab leaves it. */
function withArrows(box) {
  const buttons = [...box.children];
  buttons.forEach((button, i) => (button.tabIndex = i ? -1 : 0));
  box.addEventListener("focusin", ({ target }) => {
    buttons.forEach((button) => (button.tabIndex = button === target ? 0 : -1));
  });
  box.addEventListener("keydown", (event) => {
    if (!(event.key in ARROWS)) return;
    const [down, across] = ARROWS[event.key];
    const columns = Math.max(1, buttons.findIndex((button) => button.offsetTop > buttons[0].offsetTop));
    buttons[buttons.indexOf(document.activeElement) + across + down * columns]?.focus();
    event.preventDefault();
  });
}

function canvasOf(label) {
  const canvas = Object.assign(document.createElement("canvas"), { width, height });
  const button = Object.assign(document.createElement("button"), { type: "button" });
  button.setAttribute("aria-label", label);
  button.append(canvas);
  return { canvas, button };
}

const tiles = Array.from({ length: SHOWN }, (_, k) => {
  const { canvas, button } = canvasOf(`Draw ${k + 1}`);
  const caption = document.createElement("small");
  button.append(caption);
  button.addEventListener("click", () => {
    state.picked = state.picked === k && !state.mode.isDream ? null : k;
    restart();
  });
  $("gallery").append(button);
  return { canvas, button, caption };
});

const thumbnails = examples.map((example, n) => {
  const { canvas, button } = canvasOf(`Example ${n + 1}`);
  button.addEventListener("click", () => {
    remember();
    state.image = example.slice();
    restart();
  });
  $("examples").append(button);
  return canvas;
});

// The stronger a unit's weights to the layer below, the larger its dot.
const below = (model.prior.layers[1] ?? model.likelihood).weights[0];
const strengths = model.prior.layers[0].bias.map((_, i) =>
  Math.sqrt(below.values.subarray(i * below.columns, (i + 1) * below.columns).reduce((sum, w) => sum + w * w, 0)),
);
const strongest = strengths.reduce((a, b) => Math.max(a, b), 0);
const units = model.isStructured
  ? []
  : Array.from(model.prior.layers[0].bias, (bias, i) => {
      const button = Object.assign(document.createElement("button"), { type: "button" });
      button.setAttribute("aria-label", `Unit ${i + 1}`);
      button.title = `Unit ${i + 1}: on in ${number(100 * sigmoid(bias), 0)} % of dreams`;
      button.style.setProperty("--size", `${30 + 70 * (strengths[i] / strongest)}%`);
      button.addEventListener("click", () => {
        const layer = work.dreams[state.picked].latents[0].slice();
        layer[i] = 1 - layer[i];
        state.switched.set(state.picked, layer);
        restart();
      });
      $("units").append(button);
      return button;
    });

function showUnits(layer) {
  units.forEach((button, i) => button.setAttribute("aria-pressed", String(layer[i] === 1)));
}

function showHint() {
  $("hint").textContent = state.mode.isDream
    ? ""
    : state.isUntouched
      ? "An example: your first stroke clears it."
      : state.mode.hint;
}

function enter(mode) {
  Object.assign(state, { mode, picked: null });
  $("title").textContent = mode.title;
  $("lead").textContent = mode.lead;
  $("gallery-title").textContent = mode.gallery;
  $("gallery-hint").textContent = mode.galleryHint;
  $("mean-title").textContent = mode.mean;
  $("tools").hidden = mode.editable === 0;
  $("units-panel").hidden = !mode.isDream;
  $("bounds-panel").hidden = $("weights-panel").hidden = !mode.isScored;
  $("fold").hidden = !mode.halves;
  [$("upper").textContent, $("lower").textContent] = mode.halves ?? ["", ""];
  pad.classList.toggle("editable", mode.editable > 0);
  pad.tabIndex = mode.editable ? 0 : -1;
  pad.setAttribute("aria-label", mode.editable ? "Your drawing" : "The dream");
  tiles.forEach(({ button, caption }) => {
    button.disabled = Boolean(mode.isScored);
    caption.hidden = !mode.isScored;
  });
  showHint();
  restart();
}

function begin() {
  document.documentElement.style.setProperty("--aspect", `${width} / ${height}`);
  document.documentElement.style.setProperty("--fold", `${(100 * model.middle) / size}%`);
  for (const canvas of [pad, $("mean"), $("doubt")]) Object.assign(canvas, { width, height });
  for (const [term, text] of header.facts) {
    const group = document.createElement("div");
    const [dt, dd] = [document.createElement("dt"), document.createElement("dd")];
    dt.textContent = term;
    dd.textContent = text;
    group.append(dt, dd);
    $("facts").append(group);
  }
  $("thickness").value = Math.max(1, Math.round(0.19 * Math.min(width, height)) / 2);
  $("examples-title").hidden = examples.length === 0;
  $("bounds-hint").textContent =
    `Each dot is the bound by K samples${model.proposal ? "" : " from the prior"}, each orange bar the mean of its row; ` +
    `the dashed line is the bound by all ${MANY}.${header.reference ? ` ${header.reference}` : ""}`;
  choice($("modes"), MODES.map((mode) => mode.label), (i) => enter(MODES[i]));
  choice($("ink"), ["Grey", "Pixels"], (i) => {
    state.isPixels = i === 1;
    restart();
  });
  withArrows($("examples"));
  withArrows($("units"));
  $("undo").addEventListener("click", undo);
  $("clear").addEventListener("click", () => {
    remember();
    state.image.fill(0);
    restart();
  });
  $("erase").addEventListener("click", () => {
    state.isErasing = !state.isErasing;
    $("erase").setAttribute("aria-pressed", String(state.isErasing));
  });
  for (const button of document.querySelectorAll(".again")) {
    button.addEventListener("click", () => {
      state.key = crypto.getRandomValues(new Int32Array(2));
      state.switched.clear();
      restart();
    });
  }
  $("restore").addEventListener("click", () => {
    state.switched.delete(state.picked);
    restart();
  });
  for (const id of ["mean", "doubt"]) {
    const read = (event) => {
      const [row, column] = [(event.offsetY / $(id).clientHeight) * height, (event.offsetX / $(id).clientWidth) * width];
      if (row >= 0 && row < height && column >= 0 && column < width) showReadout(Math.floor(row) * width + Math.floor(column));
    };
    $(id).addEventListener("pointermove", read);
    $(id).addEventListener("pointerdown", read);
    $(id).addEventListener("pointerleave", (event) => event.pointerType === "mouse" && showReadout(null)); // a tap stays
  }
  const recolour = () => {
    readColours();
    thumbnails.forEach((canvas, n) => paint(canvas, examples[n], byHand));
    if (work?.draws.length) show();
  };
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", recolour);
  new ResizeObserver(() => {
    if (!work?.draws.length) return;
    work.plotted = 0;
    show();
  }).observe(document.body);
  recolour();
  enter(MODES[0]);
}

begin();

/** For tests and the console: the model, its draws, and the key that repeats them. See docs/how-to/digit-page.md. */
window.vimco = {
  model,
  /** The drawing. */
  get image() {
    return state.image;
  },
  /** Sets the drawing, rows of 0 and 1 one after the other, or the key of all draws: two words of 32 bits. */
  set({ image, key }) {
    if (image) Object.assign(state, { image: Uint8Array.from(image), isUntouched: false });
    if (key) state.key = key;
    state.switched.clear();
    restart();
  },
  /** All draws, once the last of them is made. */
  async draws() {
    if (work.draws.length < MANY) await new Promise((resolve) => waiting.push(resolve));
    return work.draws;
  },
};
