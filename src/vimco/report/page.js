"use strict";
// Replace the picture of every figure by interactive curves: for the pointer, the keyboard and the buttons below them.

const DASHES = { "-": "", "--": "6 3", ":": "1.5 3", "-.": "6 3 1.5 3" };
const MARGIN = { left: 50, right: 26, top: 24, bottom: 36 };
const smallest = (values) => values.reduce((a, b) => Math.min(a, b), Infinity); // there may be too many for one call
const largest = (values) => values.reduce((a, b) => Math.max(a, b), -Infinity);
const words = (value, digits = 2) => value.toFixed(digits).replace("-", "−");

function element(name, attributes = {}, ...children) {
  const space = ["svg", "g", "path", "line", "text", "circle", "clipPath", "rect"].includes(name)
    ? "http://www.w3.org/2000/svg" : "http://www.w3.org/1999/xhtml";
  const made = document.createElementNS(space, name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  made.append(...children);
  return made;
}

// A scale from [low, high] to [start, end], with its ticks.
function scale(low, high, start, end, isLogarithmic, most) {
  const warp = isLogarithmic ? Math.log10 : (value) => value;
  const [a, b] = [warp(low), warp(high)];
  const place = (value) => start + ((warp(value) - a) / (b - a || 1)) * (end - start);
  let ticks = [];
  if (isLogarithmic) {
    for (let power = Math.floor(a); power <= b; power++) ticks.push(...[1, 2, 5].map((m) => m * 10 ** power));
    if (ticks.filter((t) => t >= low && t <= high).length > most) ticks = ticks.filter((_, i) => i % 3 === 0);
  } else {
    const rough = (high - low) / most || 1, size = 10 ** Math.floor(Math.log10(rough));
    const step = [1, 2, 5, 10].map((m) => m * size).find((s) => s >= rough);
    for (let i = Math.ceil(low / step); i * step <= high && ticks.length <= 2 * most; i++) ticks.push(i * step);
  }
  return { place, ticks: ticks.filter((t) => t >= low && t <= high) };
}

function plot(figure, number) {
  const { quantity, isLogarithmic, panels } = JSON.parse(figure.dataset.plot);
  const image = figure.querySelector("img");
  const hidden = new Set();
  const all = panels.flatMap((panel) => panel.curves);
  if (!all.length) return;

  const switchOfUpdates = element("input", { type: "checkbox" });
  const legend = element("div", { class: "legend" });
  for (const curve of new Map(all.map((c) => [c.label, c])).values()) {
    const stroke = { stroke: curve.colour, "stroke-width": 2, "stroke-dasharray": DASHES[curve.line] };
    const swatch = element("svg", { width: 26, height: 8, "aria-hidden": "true" },
      element("line", { x1: 0, x2: 26, y1: 4, y2: 4, ...stroke }));
    const button = element("button", { type: "button", "aria-pressed": "true" }, swatch, " ", curve.label);
    button.addEventListener("click", () => {
      if (!hidden.delete(curve.label)) hidden.add(curve.label);
      button.setAttribute("aria-pressed", String(!hidden.has(curve.label)));
      draw();
    });
    legend.append(button);
  }
  legend.append(element("label", {}, switchOfUpdates, " logarithmic updates"));
  switchOfUpdates.addEventListener("change", () => draw());

  const drawings = panels.map((panel, i) => {
    const svg = element("svg", { tabindex: 0, role: "img", "aria-label": `${panel.title}. ${image.alt}` });
    const tip = element("div", { class: "tip", role: "status", hidden: "" });
    const drawing = { panel, svg, tip, clip: `clip-${number}-${i}`, shown: [], at: null };
    svg.addEventListener("pointermove", (event) => point(drawing, nearest(drawing, event)));
    svg.addEventListener("pointerdown", (event) => point(drawing, nearest(drawing, event)));
    svg.addEventListener("pointerleave", () => point(drawing, null));
    svg.addEventListener("blur", () => point(drawing, null));
    svg.addEventListener("keydown", (event) => step(drawing, event));
    return drawing;
  });

  // The range of bounds hides the steep first steps; all panels share it.
  function range(curves) {
    const values = curves.flatMap((c) => c.y);
    if (isLogarithmic) return [smallest(values) / 1.1, largest(values) * 1.1];
    const low = smallest(curves.map((c) => c.y[Math.floor(c.y.length / 8)])), high = largest(values);
    const margin = 0.05 * (high - low) || Math.max(1, 0.001 * Math.abs(high));
    return [low - margin, high + margin];
  }

  function draw() {
    const visible = all.filter((c) => !hidden.has(c.label));
    const isLog = switchOfUpdates.checked;
    for (const drawing of drawings) {
      const { panel, svg, clip } = drawing;
      const width = svg.clientWidth, height = svg.clientHeight;
      if (width < 2 * (MARGIN.left + MARGIN.right)) continue; // not laid out yet: the observer below draws it then
      const curves = panel.curves.filter((c) => !hidden.has(c.label));
      svg.replaceChildren();
      point(drawing, null);
      drawing.shown = [];
      if (!curves.length) {
        svg.append(element("text", { x: width / 2, y: height / 2, "text-anchor": "middle", fill: "#666666" },
          panel.curves.length ? "nothing switched on" : "not run"));
        continue;
      }
      const updates = curves.flatMap((c) => c.x);
      const x = scale(isLog ? Math.max(1, smallest(updates)) : 0, largest(updates),
        MARGIN.left, width - MARGIN.right, isLog, width < 420 ? 4 : isLog ? 8 : 5);
      const y = scale(...range(isLogarithmic ? curves : visible), height - MARGIN.bottom, MARGIN.top, isLogarithmic, 7);
      const box = { x: MARGIN.left, y: MARGIN.top, width: width - MARGIN.left - MARGIN.right,
        height: height - MARGIN.top - MARGIN.bottom };
      svg.append(element("clipPath", { id: clip }, element("rect", box)));
      for (const tick of x.ticks) {
        svg.append(
          element("line", { x1: x.place(tick), x2: x.place(tick), y1: box.y, y2: box.y + box.height, stroke: "#e3e7ec" }),
          element("text", { x: Math.min(x.place(tick), width - 3.5 * tick.toLocaleString("en").length), // inside the frame
            y: height - MARGIN.bottom + 15, "text-anchor": "middle", fill: "#1c2430" }, tick.toLocaleString("en")));
      }
      for (const tick of y.ticks) {
        svg.append(
          element("line", { x1: box.x, x2: box.x + box.width, y1: y.place(tick), y2: y.place(tick), stroke: "#e3e7ec" }),
          element("text", { x: box.x - 6, y: y.place(tick) + 4, "text-anchor": "end", fill: "#1c2430" },
            String(Number(tick.toPrecision(6))).replace("-", "−")));
      }
      svg.append(element("text", { x: box.x + box.width / 2, y: height - 4, "text-anchor": "middle", fill: "#1c2430" },
        "updates"), element("text", { x: 0, y: 12, fill: "#1c2430" }, quantity));
      for (const curve of curves) {
        const points = curve.x.map((u, i) => [x.place(Math.max(u, isLog ? 1 : 0)), y.place(curve.y[i])]);
        svg.append(element("path", { d: "M" + points.map((p) => p.map((v) => v.toFixed(1)).join(" ")).join("L"),
          fill: "none", stroke: curve.colour, "stroke-width": 1.8, "stroke-dasharray": DASHES[curve.line],
          "clip-path": `url(#${clip})` }));
        if (points.length < 5) points.forEach(([cx, cy]) => svg.append(element("circle", { cx, cy, r: 2.5, fill: curve.colour })));
        drawing.shown.push({ curve, points: points.map(([px, py]) => [px, Math.min(Math.max(py, box.y), box.y + box.height)]) });
      }
    }
  }

  // The point of any curve that is nearest to the pointer.
  function nearest(drawing, event) {
    const frame = drawing.svg.getBoundingClientRect();
    const [px, py] = [event.clientX - frame.left, event.clientY - frame.top];
    let best = null;
    drawing.shown.forEach(({ points }, c) => points.forEach(([x, y], i) => {
      const distance = Math.hypot(x - px, y - py);
      if (best === null || distance < best.distance) best = { c, i, distance };
    }));
    return best;
  }

  function point(drawing, at) {
    const { svg, tip, shown } = drawing;
    svg.querySelector(".mark")?.remove();
    drawing.at = at;
    tip.hidden = at === null;
    if (at === null) return;
    const { curve, points } = shown[at.c], [x, y] = points[at.i];
    svg.append(element("circle", { class: "mark", cx: x, cy: y, r: 4.5, fill: curve.colour, stroke: "#ffffff" }));
    tip.textContent = `${curve.label}: ${words(curve.y[at.i])} at update ${curve.x[at.i].toLocaleString("en")}`;
    const room = svg.clientWidth - tip.offsetWidth;
    const top = svg.getBoundingClientRect().top - svg.parentElement.getBoundingClientRect().top;
    tip.style.left = `${Math.max(0, Math.min(room, x - tip.offsetWidth / 2))}px`;
    tip.style.top = `${top + y + (y < 60 ? 12 : -36)}px`;
  }

  // Left and right go along a curve, up and down from curve to curve.
  function step(drawing, event) {
    const along = { ArrowLeft: -1, ArrowRight: 1 }[event.key] ?? 0, across = { ArrowUp: -1, ArrowDown: 1 }[event.key] ?? 0;
    const count = drawing.shown.length;
    if ((!along && !across) || !count) return;
    event.preventDefault();
    const c = drawing.at === null ? 0 : (drawing.at.c + across + count) % count;
    const last = drawing.shown[c].points.length - 1;
    point(drawing, { c, i: drawing.at === null ? last : Math.max(0, Math.min(last, drawing.at.i + along)) });
  }

  const frame = element("div", { class: "plot" },
    element("div", { class: "panels" }, ...drawings.map(({ panel, svg, tip }) =>
      element("div", { class: "panel" }, element("h3", {}, panel.title), svg, tip))), legend);
  image.before(frame);
  image.hidden = true;
  draw();
  new ResizeObserver(draw).observe(frame); // the width changes with the window
}

document.querySelectorAll("figure[data-plot]").forEach(plot);
