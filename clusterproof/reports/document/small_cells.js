// The map of many nodes: a small cell for each in one drawing, told apart by its shape as by its colour.
const SHAPES = { // of a cell of s px at x, y: full, with a hole, a triangle, pale, a dot
  F: (x, y, s) => `M${x} ${y}h${s}v${s}h-${s}z`,
  I: (x, y, s) => `M${x} ${y}h${s}v${s}h-${s}zM${x + s * 0.22} ${y + s * 0.22}v${s * 0.56}h${s * 0.56}v-${s * 0.56}z`,
  C: (x, y, s) => `M${x} ${y + s}h${s}v-${s}z`,
  pass: (x, y, s) => `M${x} ${y}h${s}v${s}h-${s}z`,
  na: (x, y, s) => `M${x + s * 0.3} ${y + s * 0.3}h${s * 0.4}v${s * 0.4}h-${s * 0.4}z`,
};
const MAX_LABELLED = 4000; // nodes of a map whose places have their names beside them
const LABEL_PX = 13, CHAR_PX = 5.6;

function cellPx(nodes, width) {
  return nodes > MAX_LABELLED ? (width < 700 ? 5 : 7) : nodes > 1500 ? 9 : 12;
}

// Where each place and each node of it is drawn, from left to right as long as there is room.
function placed(places, width) {
  const count = places.reduce((sum, [, nodes]) => sum + nodes.length, 0);
  const px = cellPx(count, width), gap = px > 8 ? 12 : 6, head = count > MAX_LABELLED ? 0 : LABEL_PX;
  const boxes = [];
  let x = 0, y = 0, lineHeight = 0;
  for (const [name, nodes] of places) {
    const label = head ? within(name, 24) : "";
    const least = Math.ceil(label.length * CHAR_PX / px);
    const most = Math.max(1, Math.floor(width / px));
    const across = Math.min(most, Math.max(least, nodes.length > 100 ? 50 : Math.ceil(Math.sqrt(nodes.length * 2))));
    const box = { name, label, nodes, across, width: across * px, height: Math.ceil(nodes.length / across) * px + head };
    if (x && x + box.width > width) {
      x = 0;
      y += lineHeight + gap;
      lineHeight = 0;
    }
    boxes.push({ ...box, x, y });
    x += box.width + gap;
    lineHeight = Math.max(lineHeight, box.height);
  }
  return { boxes, px, head, width, height: y + lineHeight };
}

function drawSmallCells(place, places, chosen) {
  const drawing = placed(places, Math.max(200, place.clientWidth));
  const { boxes, px, head, width, height } = drawing;
  const paths = { pass: "", na: "", C: "", I: "", F: "" };
  for (const box of boxes) box.nodes.forEach((node, at) => {
    const name = chosen.has(node) ? classOf(worstLetter(node)) : "na";
    paths[name] += SHAPES[name](box.x + at % box.across * px, box.y + head + Math.floor(at / box.across) * px, px - 1);
  });
  const labels = boxes.filter(({ label }) => label).map(({ label, x, y }) => svg("text", { x, y: y + 9 }, label));
  const under = svg("path", { class: "under", d: "" });
  const drawn = svg("svg", { class: "nodes", width, height, viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": "map of " + summary(boxes.flatMap(({ nodes }) => nodes)) },
    labels, Object.entries(paths).filter(([, d]) => d).map(([name, d]) => svg("path", { class: name, d })), under);
  const nodeAt = (event) => {
    const shown = drawn.getBoundingClientRect();
    const x = (event.clientX - shown.left) * width / shown.width, y = (event.clientY - shown.top) * height / shown.height;
    const box = boxes.find((one) => x >= one.x && x < one.x + one.width && y >= one.y + head && y < one.y + one.height);
    if (!box) return [];
    const column = Math.floor((x - box.x) / px), row = Math.floor((y - box.y - head) / px);
    under.setAttribute("d", `M${box.x + column * px - 1} ${box.y + head + row * px - 1}h${px + 1}v${px + 1}h-${px + 1}z`);
    return [box.nodes[row * box.across + column], box];
  };
  drawn.addEventListener("mousemove", (event) => {
    const [node, box] = nodeAt(event);
    if (node !== undefined) describeNode(node, box.name);
  });
  drawn.addEventListener("click", (event) => {
    const [node] = nodeAt(event);
    if (node !== undefined) location.hash = "#q=" + encodeURIComponent(data.nodes[node]);
  });
  fill(place, drawn, sickNodes(boxes, chosen));
}

// The same in words, for whoever does not see it: which nodes have which verdict, and in which places most failed.
const MAX_SICK_PLACES = 12;
function sickNodes(boxes, chosen) {
  const all = boxes.flatMap(({ nodes }) => nodes).filter((node) => chosen.has(node));
  const rows = [..."FIC"].map((letter) => [letter, all.filter((node) => worstLetter(node) === letter)]).filter(([, nodes]) => nodes.length);
  const worst = boxes.map(({ name, nodes }) => [name, nodes.filter((node) => chosen.has(node) && worstLetter(node) === "F")])
    .filter(([name, nodes]) => name && nodes.length).sort((a, b) => b[1].length - a[1].length);
  const link = (nodes, words) => el("a", { href: "#q=" + encodeURIComponent(fold(nodes.map(nameOf))) }, words);
  return el("dl", { class: "sick" }, rows.map(([letter, nodes]) => [
    el("dt", {}, el("span", { class: "key " + letter }), " ", WORDS[letter]),
    el("dd", {}, link(nodes, counted(undefined, nodes.length, "node")), " ", breakable(foldWithin(nodes.map(nameOf), 160))),
  ]), worst.length > 1 && [el("dt", {}, "most in"), el("dd", {}, worst.slice(0, MAX_SICK_PLACES).flatMap(([name, nodes], at) =>
    [at ? ", " : "", link(nodes, within(name, 40)), " " + nodes.length.toLocaleString("en")]), worst.length > MAX_SICK_PLACES ? ", … and " + counted(undefined, worst.length - MAX_SICK_PLACES, "more place") : "")]);
}
