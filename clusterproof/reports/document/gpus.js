// The heat map of GPUs × nodes: a column for each node, a row for each GPU, in bands as wide as the window.
const CELL = 14, LABEL = 44, FOOT = 18; // px
const BANDS = 12; // drawn at first
const STEPS_OF_HEAT = ["normal", "low-1", "low-2", "low-3", "low-4"];
const heat = { place: document.getElementById("gpu-bands"), by: document.getElementById("measure"), nodes: [], shown: BANDS, width: 0, timer: 0 };

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
  const drawn = reporting.length ? heat.nodes : []; // a node that reported nothing is an empty column
  const all = reporting.flatMap((node) => valuesOf(node).map((value, gpu) => [value, node, gpu])).filter(([value]) => value !== null);
  const step = scaleOf(all.map(([value]) => value), span);
  const across = Math.max(4, Math.floor((heat.width - LABEL - 4) / CELL));
  const deep = Math.max(0, ...reporting.map((node) => valuesOf(node).length));
  const bands = [];
  for (let at = 0; at < drawn.length; at += across) bands.push(drawn.slice(at, at + across));
  fill(heat.place, bands.slice(0, heat.shown).map((band) => bandOf(band, deep, valuesOf, step, title)),
    bands.length <= heat.shown ? "" : el("button", { type: "button", onclick: () => { heat.shown += 4 * BANDS; drawGpus(); } },
      "show more nodes (" + drawn.slice(heat.shown * across).length.toLocaleString("en") + " are not shown)"),
    reporting.length ? "" : el("p", {}, "None of the nodes shown reported this."));
  drawLegend(step, unit);
  heat.peers = peersOf(all);
  fill(document.getElementById("gpu-detail"), "Point at a GPU to read its value, that of its peers, and what it means; a click shows its node.");
  sayMost(all, title, unit, isCount);
}

// The middle of all values, and between which nine of ten lie.
function peersOf(all) {
  const sorted = all.map(([value]) => value).sort((a, b) => a - b);
  const at = (share) => sorted[Math.min(sorted.length - 1, Math.floor(share * sorted.length))];
  return sorted.length ? { count: sorted.length, middle: at(0.5), low: at(0.05), high: at(0.95) } : null;
}

// The measure of which one GPU stands out most: of what is measured by how many spans it is from the middle, of what is
// counted by its powers of ten where most GPUs count nothing.
function strongestOutlier() {
  const scores = data.gpus.map(([, , span, rows]) => {
    const values = rows.flatMap((row) => data.pool[row]).filter((value) => value !== null).sort((a, b) => a - b);
    if (!values.length) return 0;
    const middle = values[Math.floor(values.length / 2)], most = values[values.length - 1];
    if (!span) return middle > 0 ? 0 : Math.log10(1 + most);
    return Math.max(most - middle, middle - values[0]) / span;
  });
  return scores.indexOf(Math.max(...scores));
}

// Which step a value is of: of a count by powers of ten, else by as many steps between the least and the most as `span`
// takes, at most five: GPUs that differ by 3 °C look alike.
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
  const steps = Math.max(1, Math.min(STEPS_OF_HEAT.length, Math.ceil(STEPS_OF_HEAT.length * (most - least) / span)));
  const apart = (most - least) / steps || 1;
  const bounds = Array.from({ length: steps }, (_, number) => least + number * apart);
  return { of: (value) => Math.min(steps - 1, Math.floor((value - least) / apart)), bounds, most, least, isCount };
}

function bandOf(band, deep, valuesOf, step, title) {
  const paths = STEPS_OF_HEAT.map(() => "");
  band.forEach((node, column) => valuesOf(node).forEach((value, gpu) => {
    if (value !== null) paths[step.of(value)] += "M" + (LABEL + column * CELL) + " " + gpu * CELL + "h" + (CELL - 1) + "v" + (CELL - 1) + "h" + (1 - CELL) + "z";
  }));
  const width = LABEL + band.length * CELL, height = deep * CELL;
  const absent = band.map((node, column) => valuesOf(node).some((value) => value !== null) ? "" : `M${LABEL + column * CELL + 1} 1L${LABEL + (column + 1) * CELL - 2} ${height - 1}`).join("");
  const labels = Array.from({ length: deep }, (_, gpu) => svg("text", { x: LABEL - 4, y: gpu * CELL + 11, class: "row" }, "GPU " + gpu));
  const names = foldWithin(band.map(nameOf), Math.max(12, Math.floor(band.length * CELL / 6.7)));
  const drawn = svg("svg", { class: "heat", width: Math.max(width, LABEL + names.length * 6.8), height: height + FOOT, role: "img", "aria-label": title + " of the GPUs of " + visible(foldWithin(band.map(nameOf), 200)) },
    labels, svg("path", { class: "empty", d: "M" + LABEL + " 0h" + band.length * CELL + "v" + height + "h" + -band.length * CELL + "z" }),
    absent ? svg("path", { class: "absent", d: absent }) : "",
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
  if (node === undefined) return;
  const value = valuesOf(node)[gpu];
  if (value === undefined || value === null) {
    return fill(document.getElementById("gpu-detail"), el("b", {}, within(data.nodes[node], 60)), " ", whyEmpty(node, gpu, valuesOf(node)));
  }
  const others = data.gpus.map(([title, unit, , rows]) => [title, unit, data.pool[rows[node]][gpu]]);
  fill(document.getElementById("gpu-detail"), el("b", {}, within(data.nodes[node], 60) + " GPU " + gpu), " ",
    besidePeers(value), el("br"),
    others.map(([title, unit, one]) => title + " " + (one === null || one === undefined ? "not reported" : one + (unit && " " + unit))).join(" · "));
}

// What a value is beside those of all other GPUs shown.
function besidePeers(value) {
  const [title, unit, span] = data.gpus[heat.by.value || 0];
  const { count, middle, low, high } = heat.peers;
  const words = (one) => shorter(one) + (unit && " " + unit);
  const apart = value - middle;
  const why = !span ? (value ? "counts what should be zero" : "counts nothing") : Math.abs(apart) * STEPS_OF_HEAT.length < span ? "as its peers"
    : words(Math.abs(apart)) + (apart > 0 ? " above" : " below") + " the middle of its peers";
  return title + " " + words(value) + ": " + why + "; of " + count + " GPUs the middle is " + words(middle) + ", nine of ten from " + words(low) + " to " + words(high);
}

function whyEmpty(node, gpu, values) {
  const found = checks.filter((check) => letterOf(check, node) === "I").map((check) => wordsOf(check, node)).filter(Boolean);
  return (values.some((value) => value !== null) ? "GPU " + gpu + " did not report this" : "no GPU of it reported this") + (found.length ? ": " + within(found[0].split("\n")[0], 160) : "");
}

function drawLegend(step, unit) {
  const { bounds, most, least, isCount } = step;
  const words = (number) => {
    if (isCount) return ["0", "1 to 9", "10 to 99", "100 to 999", "1,000 or more"][number];
    const end = number + 1 < bounds.length ? bounds[number + 1] : most;
    return shorter(bounds[number]) + " to " + shorter(end) + (unit && " " + unit);
  };
  const swatch = (name, text) => el("span", {}, el("span", { class: "swatch " + name }), " " + text);
  const swatches = most === -Infinity ? [] : !isCount && least === most ? [swatch(STEPS_OF_HEAT[0], "all " + shorter(most) + (unit && " " + unit))]
    : STEPS_OF_HEAT.slice(0, bounds.length).map((name, number) => swatch(name, words(number)));
  fill(document.getElementById("gpu-legend"), swatches, el("span", {}, "crossed out: the node reported nothing"));
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
      : "Of " + all.length.toLocaleString("en") + " GPUs none has any " + title + ".");
}

if (heat.place) {
  data.gpus.forEach(([title], number) => heat.by.append(el("option", { value: String(number) }, title)));
  heat.by.value = String(strongestOutlier());
  heat.by.addEventListener("change", () => drawGpus());
  addEventListener("resize", () => {
    if (heat.place.clientWidth && heat.place.clientWidth !== heat.width) drawGpus();
  });
}
