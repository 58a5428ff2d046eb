// The map: every node as a cell in the place where it stands, coloured by its worst verdict; a click filters the page to it.
const BY_NAME = "name";
const MAX_NAMED = 64; // nodes that have their names in their cells
const MAX_LETTERED = 256; // nodes that have a letter in their cells
const NEXT_TO_EACH_OTHER = 50; // nodes of one name in a place, where the places are unknown
const map = { place: document.getElementById("map-places"), by: document.getElementById("map-by"), cells: [], chosen: new Set(), width: 0 };
const isSmall = data.nodes.length > MAX_LETTERED;

function drawMap() {
  if (!map.place) return;
  const words = isSmall ? "Point at a node to read what is wrong with it; a click shows it alone."
    : "Point at a node, or walk with the arrow keys, to read what is wrong with it; Enter shows it alone.";
  fill(document.getElementById("map-detail"), words);
  if (isSmall) {
    map.width = map.place.clientWidth;
    return drawSmallCells(map.place, placesBy(map.by.value), map.chosen);
  }
  map.cells = new Array(CLUSTER);
  fill(map.place, placesBy(map.by.value).map(([name, nodes]) => el("section", { class: "place", "aria-label": visible(name) },
    name && el("h3", {}, within(name, 40), " ", el("small", {}, summary(nodes))),
    el("div", { class: "cells" }, nodes.map(cellOf)))));
  const first = map.cells.find((cell) => "FIC".includes(worstLetter(cell.node))) || map.cells[0];
  if (first) first.tabIndex = 0;
}

function cellOf(node) {
  const letter = worstLetter(node);
  const name = data.nodes[node];
  const sign = letter === "." ? "·" : letter === "-" || letter === " " ? "–" : letter;
  const cell = el("a", {
    class: "cell " + classOf(letter), href: "#q=" + encodeURIComponent(name), tabindex: "-1",
    "aria-label": visible(within(name, 20)) + " " + sign + ": " + visible(name.length > 20 ? within(name, 60) + ", " : "") + (WORDS[letter] || "not checked"),
  }, data.nodes.length > MAX_NAMED ? "" : el("span", { class: "name" }, within(name, 20)), data.nodes.length > MAX_NAMED ? "" : " ", sign);
  cell.node = node;
  map.cells[node] = cell;
  return cell;
}

// `[name, nodes]` of each place; where no place is asked for stretches of names, those on which most failed first.
function placesBy(kind) {
  const known = data.places.find(([name]) => name === kind);
  const all = data.nodes.map((_, node) => node);
  if (!known) {
    if (all.length <= 2 * NEXT_TO_EACH_OTHER) return [["", all]];
    const stretches = [];
    for (let at = 0; at < all.length; at += NEXT_TO_EACH_OTHER) stretches.push(all.slice(at, at + NEXT_TO_EACH_OTHER));
    const weight = (nodes) => [..."FIC"].map((letter) => nodes.filter((node) => worstLetter(node) === letter).length);
    const weighed = stretches.map((nodes) => [weight(nodes), nodes]);
    weighed.sort(([a, one], [b, other]) => b[0] - a[0] || b[1] - a[1] || b[2] - a[2] || one[0] - other[0]);
    return weighed.map(([, nodes]) => [fold([data.nodes[nodes[0]], data.nodes[nodes[nodes.length - 1]]]).replace(/\[(\d+),(\d+)\]/, "[$1-$2]"), nodes]);
  }
  const [, names, numbers] = known;
  const found = names.map((name, number) => [name, all.filter((node) => numbers[node] === number)]);
  const lost = all.filter((node) => numbers[node] < 0);
  return lost.length ? [...found, ["place unknown", lost]] : found;
}

function summary(nodes) {
  const worst = nodes.map((node) => worstLetter(node));
  const counts = [..."FIC"].map((letter) => [worst.filter((one) => one === letter).length, WORDS[letter]]);
  return [counted(undefined, nodes.length, "node"), ...counts.filter(([count]) => count).map(([count, word]) => count.toLocaleString("en") + " " + word)].join(", ");
}

// Nodes that the filter leaves out are dim.
function dimMap(chosen) {
  if (!map.place) return;
  map.chosen = chosen;
  if (isSmall) return drawMap();
  for (const cell of map.cells) cell.classList.toggle("out", !chosen.has(cell.node));
}

function describeNode(node, where = "") {
  const found = checks.filter((check) => "FIC".includes(letterOf(check, node)));
  const ranked = found.sort((a, b) => WORST_FIRST.indexOf(letterOf(a, node)) - WORST_FIRST.indexOf(letterOf(b, node)));
  const names = ranked.slice(0, 4).map((check) => check.title + " (" + WORDS[letterOf(check, node)] + ")");
  const more = ranked.length > names.length ? ", … and " + (ranked.length - names.length) + " more" : "";
  fill(document.getElementById("map-detail"), el("b", {}, WORDS[worstLetter(node)] || "not checked"), " ",
    el("a", { href: "#node=" + encodeURIComponent(data.nodes[node]) }, within(data.nodes[node], 60)), where && " in " + within(where, 40),
    names.length ? ": " + names.join(", ") + more : "");
}

if (map.place) {
  for (const [kind] of data.places) map.by.append(el("option", { value: kind }, kind));
  map.by.append(el("option", { value: BY_NAME }, BY_NAME));
  map.by.addEventListener("change", () => { drawMap(); apply(); });
  map.place.addEventListener("keydown", (event) => {
    const steps = { ArrowLeft: -1, ArrowUp: -1, ArrowRight: 1, ArrowDown: 1 };
    if (!(event.key in steps) || event.target.node === undefined) return;
    event.preventDefault();
    const cells = [...map.place.querySelectorAll(".cell")];
    const next = cells[cells.indexOf(event.target) + steps[event.key]];
    if (!next) return;
    event.target.tabIndex = -1;
    next.tabIndex = 0;
    next.focus();
  });
  for (const kind of ["focusin", "mouseover"]) {
    map.place.addEventListener(kind, (event) => {
      if (event.target.node !== undefined) describeNode(event.target.node);
    });
  }
  if (!isSmall) drawMap();
  addEventListener("resize", () => {
    if (isSmall && map.place.clientWidth && map.place.clientWidth !== map.width) drawMap();
  });
}
