// The heat map of GPUs × nodes: a column for each node, a row for each GPU, in bands as wide as the window.
const SVG = "http://www.w3.org/2000/svg";
const CELL = 14, LABEL = 44, FOOT = 18; // px
const BANDS = 12; // drawn at first
const STEPS_OF_HEAT = ["normal", "low-1", "low-2", "low-3", "low-4"];
const heat = { place: document.getElementById("gpu-bands"), by: document.getElementById("measure"), nodes: [], shown: BANDS, width: 0, timer: 0 };

function svg(tag, attributes, ...children) {
  const made = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  return fill(made, ...children);
}

// Once the rest of the page has answered: a filter waits for no picture.
function drawGpusSoon(nodes) {
  if (!heat.place) return;
  heat.nodes = nodes;
  clearTimeout(heat.timer);
  heat.timer = setTimeout(drawGpus);
}

function drawGpus() {
  heat.width = heat.place.clientWidth;
  const [title, unit, span, rows] = data.gpus[heat.by.value || 0];
  const isCount = !span;
  const valuesOf = (node) => data.pool[rows[node]];
  const reporting = heat.nodes.filter((node) => valuesOf(node).some((value) => value !== null));
  const all = reporting.flatMap((node) => valuesOf(node).map((value, gpu) => [value, node, gpu])).filter(([value]) => value !== null);
  const step = scaleOf(all.map(([value]) => value), span);
  const across = Math.max(4, Math.floor((heat.width - LABEL - 4) / CELL));
  const deep = Math.max(0, ...reporting.map((node) => valuesOf(node).length));
  const bands = [];
  for (let at = 0; at < reporting.length; at += across) bands.push(reporting.slice(at, at + across));
  fill(heat.place, bands.slice(0, heat.shown).map((band) => bandOf(band, deep, valuesOf, step, title)),
    bands.length <= heat.shown ? "" : el("button", { type: "button", onclick: () => { heat.shown += 4 * BANDS; drawGpus(); } },
      "show more nodes (" + reporting.slice(heat.shown * across).length + " are not shown)"),
    reporting.length ? "" : el("p", {}, "None of the nodes shown reported this."));
  drawLegend(step, unit);
  fill(document.getElementById("gpu-detail"));
  sayMost(all, title, unit, isCount);
}

// Which step a value is of: of a count by powers of ten, else by fifths of what lies between
// the least and the most, or of `span` where that is more: GPUs that differ by 3 °C look alike.
function scaleOf(values, span) {
  const isCount = !span;
  let least = Infinity, most = -Infinity;
  for (const value of values) {
    least = Math.min(least, value);
    most = Math.max(most, value);
  }
  if (isCount) {
    const bounds = [0, 1, 10, 100, 1000];
    return { of: (value) => bounds.filter((bound) => value >= bound).length - 1, bounds, most, least, isCount };
  }
  const apart = Math.max(most - least, span) / STEPS_OF_HEAT.length;
  const bounds = STEPS_OF_HEAT.map((_, number) => least + number * apart);
  return { of: (value) => Math.min(STEPS_OF_HEAT.length - 1, Math.floor((value - least) / apart)), bounds, most, least, isCount };
}

function bandOf(band, deep, valuesOf, step, title) {
  const paths = STEPS_OF_HEAT.map(() => "");
  band.forEach((node, column) => valuesOf(node).forEach((value, gpu) => {
    if (value !== null) paths[step.of(value)] += "M" + (LABEL + column * CELL) + " " + gpu * CELL + "h" + (CELL - 1) + "v" + (CELL - 1) + "h" + (1 - CELL) + "z";
  }));
  const width = LABEL + band.length * CELL, height = deep * CELL;
  const labels = Array.from({ length: deep }, (_, gpu) => svg("text", { x: LABEL - 4, y: gpu * CELL + 11, class: "row" }, "GPU " + gpu));
  const names = within(fold(band.map(nameOf)), Math.max(12, Math.floor(band.length * CELL / 6.7)));
  const drawn = svg("svg", { class: "heat", width: Math.max(width, LABEL + names.length * 6.8), height: height + FOOT, role: "img", "aria-label": title + " of the GPUs of " + visible(within(fold(band.map(nameOf)), 200)) },
    labels, svg("path", { class: "empty", d: "M" + LABEL + " 0h" + band.length * CELL + "v" + height + "h" + -band.length * CELL + "z" }),
    paths.map((path, number) => !path ? "" : svg("path", { class: STEPS_OF_HEAT[number], d: path })),
    svg("text", { x: LABEL, y: height + 13 }, names));
  const under = (event) => {
    const box = drawn.getBoundingClientRect();
    return [band[Math.floor((event.clientX - box.left - LABEL) / CELL)], Math.floor((event.clientY - box.top) / CELL)];
  };
  drawn.addEventListener("mousemove", (event) => describeGpu(...under(event), valuesOf));
  drawn.addEventListener("click", (event) => {
    const [node, gpu] = under(event);
    if (node !== undefined && gpu < deep) location.hash = "#node=" + encodeURIComponent(data.nodes[node]);
  });
  return drawn;
}

function describeGpu(node, gpu, valuesOf) {
  const value = node === undefined ? undefined : valuesOf(node)[gpu];
  if (value === undefined) return;
  const others = data.gpus.map(([title, unit, , rows]) => [title, unit, data.pool[rows[node]][gpu]]);
  fill(document.getElementById("gpu-detail"), el("b", {}, within(data.nodes[node], 60) + " GPU " + gpu), " ",
    others.map(([title, unit, one]) => title + " " + (one === null || one === undefined ? "not reported" : one + (unit && " " + unit))).join(" · "));
}

function drawLegend(step, unit) {
  const { bounds, most, least, isCount } = step;
  const words = (number) => {
    if (isCount) return ["0", "1 to 9", "10 to 99", "100 to 999", "1,000 or more"][number];
    const end = number + 1 < bounds.length ? bounds[number + 1] : Math.max(most, 2 * bounds[number] - bounds[number - 1]);
    return shorter(bounds[number]) + " to " + shorter(end) + (unit && " " + unit);
  };
  const swatch = (name, text) => el("span", {}, el("span", { class: "swatch " + name }), " " + text);
  const swatches = most === -Infinity ? [] : !isCount && least === most ? [swatch(STEPS_OF_HEAT[0], "all " + shorter(most) + (unit && " " + unit))]
    : STEPS_OF_HEAT.map((name, number) => swatch(name, words(number)));
  fill(document.getElementById("gpu-legend"), swatches, el("span", {}, "empty: not reported"));
}

function shorter(value) {
  return String(Math.round(value * 10) / 10);
}

// The same in words, for whoever does not see colours: where the most is, and of what is measured the least.
function sayMost(all, title, unit, isCount) {
  const ranked = all.filter(([value]) => !isCount || value > 0).sort((a, b) => b[0] - a[0]);
  const link = ([value, node, gpu]) => el("li", {}, el("a", { href: "#node=" + encodeURIComponent(data.nodes[node]) },
    within(data.nodes[node], 60)), " GPU " + gpu + ": " + value + (unit && " " + unit));
  const ends = isCount ? [["the most", ranked.slice(0, 5)]] : [["the most", ranked.slice(0, 3)], ["the least", ranked.slice(3).slice(-3).reverse()]];
  fill(document.getElementById("gpu-most"),
    ranked.length ? ends.filter(([, some]) => some.length).map(([words, some]) => el("div", {}, words, el("ul", {}, some.map(link))))
      : "Of " + all.length + " GPUs none has any " + title + ".");
}

if (heat.place) {
  data.gpus.forEach(([title], number) => heat.by.append(el("option", { value: String(number) }, title)));
  heat.by.addEventListener("change", () => drawGpus());
  addEventListener("resize", () => {
    if (heat.place.clientWidth && heat.place.clientWidth !== heat.width) drawGpus();
  });
}
