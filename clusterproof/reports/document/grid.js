// The grid: nodes that are alike share a row; what passes everywhere has no column until it is asked for.
const PAGE = 150; // rows drawn at first, and with each "more"
const grid = { table: document.getElementById("grid-table"), rows: [], columns: [], shown: PAGE, open: new Set() };

function drawGrid(filter) {
  if (!grid.table) return;
  const taken = checks.filter(filter.takesCheck);
  const among = taken.filter((check) => check.letters.trim()); // those of pairs have none
  const box = document.getElementById("all-checks");
  const nodes = [];
  for (let node = 0; node <= CLUSTER; node++) if (filter.takesNode(node, taken)) nodes.push(node);
  const worth = nodes.map((node) => [node, isSilent(node) ? "F" : "FIC"]);
  const notable = among.filter((check) => worth.some(([node, letters]) => letters.includes(letterOf(check, node))));
  grid.columns = box.checked || !notable.length ? among : notable;
  box.closest(".tools").hidden = !notable.length || notable.length === among.length;
  grid.columns.sort((a, b) => a.subsystem.localeCompare(b.subsystem) || a.number - b.number);
  grid.rows = grouped(nodes, grid.columns);
  grid.shown = Math.max(PAGE, grid.shown);
  render();
}

// A node that hardly reported anything, as one that was not reached: its gaps have one cause, and no column for each.
function isSilent(node) {
  const evaluated = checks.filter((check) => "FIC.".includes(letterOf(check, node)));
  return evaluated.filter((check) => letterOf(check, node) === "I").length > evaluated.length / 2;
}

function grouped(nodes, columns) {
  const groups = new Map();
  for (const node of nodes) {
    const letters = columns.map((check) => letterOf(check, node)).join("");
    const whole = node === CLUSTER ? data.whole : "";
    const key = whole + letters;
    if (!groups.has(key)) groups.set(key, { key, letters, nodes: [] });
    groups.get(key).nodes.push(node);
  }
  const weight = ({ letters }) => [..."FIC"].map((letter) => letters.split(letter).length - 1);
  return [...groups.values()].map((group) => ({ ...group, weight: weight(group) })).sort((a, b) =>
    b.weight[0] - a.weight[0] || b.weight[1] - a.weight[1] || b.weight[2] - a.weight[2] || a.nodes[0] - b.nodes[0]);
}

function render() {
  const { columns, rows } = grid;
  const lines = rows.flatMap((group) => {
    const isOpen = group.nodes.length > 1 && grid.open.has(group.key);
    return [group, ...(isOpen ? group.nodes.map((node) => ({ ...group, nodes: [node], isInner: true })) : [])];
  });
  const shown = lines.slice(0, grid.shown);
  fill(grid.table,
    el("caption", {}, counted(columns.length, checks.filter((check) => check.letters.trim()).length, "check") + ", " + counted(undefined, rows.length, "row")),
    el("thead", {}, subsystems(columns), el("tr", {}, el("td"), columns.map(heading))),
    el("tbody", {}, shown.map(line)),
  );
  const more = document.getElementById("more");
  more.hidden = shown.length === lines.length;
  fill(more, el("button", { type: "button", onclick: () => { grid.shown += PAGE * 4; render(); } },
    "show more rows (" + (lines.length - shown.length) + " are not shown)"));
  const first = grid.table.querySelector("td.F, td.I, td.C") || grid.table.querySelector("tbody td");
  if (first) first.tabIndex = 0;
  const name = grid.table.querySelector("tbody th");
  if (name) grid.table.parentNode.style.scrollPaddingLeft = name.offsetWidth + "px"; // no focused cell lies below the names
}

function subsystems(columns) {
  const runs = [];
  for (const { subsystem } of columns) {
    if (runs.length && runs[runs.length - 1][0] === subsystem) runs[runs.length - 1][1]++;
    else runs.push([subsystem, 1]);
  }
  return el("tr", { class: "subsystems" }, el("td"),
    runs.map(([name, count]) => el("th", { colspan: count, scope: "colgroup", title: visible(name), class: count * 23 < name.length * 8 && "upright" },
      el("span", {}, name.replace("_", " ")))));
}

function heading(check) {
  const name = check.id.slice(check.id.lastIndexOf(".") + 1);
  return el("th", { scope: "col", title: visible(check.id + ": " + check.title) }, el("span", {}, within(name, 40)));
}

function line(group) {
  const name = group.nodes.length === 1 ? single(group) : several(group);
  const row = el("tr", { class: group.isInner ? "inner" : false }, el("th", { scope: "row" }, name));
  for (let column = 0; column < group.letters.length; column++) {
    const letter = group.letters[column];
    const cell = document.createElement("td"); // the inner loop of the page: no more than it needs
    cell.className = { ".": "pass", "-": "na", " ": "none" }[letter] || letter;
    cell.textContent = letter === "." ? "·" : letter === "-" ? "–" : letter;
    cell.tabIndex = -1;
    row.append(cell);
  }
  row.group = group;
  return row;
}

function single(group) {
  const [node] = group.nodes;
  const name = within(nameOf(node), 60);
  return node === CLUSTER ? name : el("a", { href: "#node=" + encodeURIComponent(data.nodes[node]) }, name);
}

function several(group) {
  const isOpen = grid.open.has(group.key);
  const names = foldWithin(group.nodes.map(nameOf), 60);
  return el("button", {
    type: "button",
    "aria-expanded": String(isOpen),
    title: visible(foldWithin(group.nodes.map(nameOf), 2000)),
    onclick: () => {
      if (isOpen) grid.open.delete(group.key);
      else grid.open.add(group.key);
      render();
    },
  }, el("b", {}, counted(undefined, group.nodes.length, "node")), " ", breakable(names));
}

const MAX_SAID = 3; // messages below the grid; a node's page has all of it
// What stands in one cell, said where a screen reader announces it.
function describeCell(cell) {
  const group = cell.parentNode.group;
  const check = group && grid.columns[cell.cellIndex - 1];
  if (!check) return;
  const letter = group.letters[cell.cellIndex - 1];
  const messages = [...new Set(group.nodes.map((node) => wordsOf(check, node)))].filter(Boolean);
  const more = messages.length > MAX_SAID ? ["… and " + (messages.length - MAX_SAID).toLocaleString("en") + " more"] : [];
  fill(document.getElementById("grid-detail"),
    el("b", {}, WORDS[letter] || "not run"), " ", breakable(foldWithin(group.nodes.map(nameOf), 200)), " · " + check.id + ": " + check.title,
    [...messages.slice(0, MAX_SAID), ...more].map((words) => el("span", { class: "message" }, words)),
  );
  reachByKeys();
}

const STEPS = { ArrowLeft: [0, -1], ArrowRight: [0, 1], ArrowUp: [-1, 0], ArrowDown: [1, 0] };
function step(event) {
  const cell = event.target.closest("tbody td");
  if (!cell) return;
  if (event.key === "Enter") {
    const lead = cell.parentNode.querySelector("th a, th button");
    if (lead) lead.click();
    return;
  }
  if (!(event.key in STEPS)) return;
  event.preventDefault();
  const [down, right] = STEPS[event.key];
  const rows = [...cell.parentNode.parentNode.rows];
  const row = rows[rows.indexOf(cell.parentNode) + down];
  const next = row && row.cells[cell.cellIndex + right];
  if (!next || next.tagName !== "TD") return;
  cell.tabIndex = -1;
  next.tabIndex = 0;
  next.focus({ preventScroll: true });
  next.scrollIntoView({ block: "nearest", inline: "nearest" }); // wholly: a focus alone leaves it half beyond the edge
}

if (grid.table) {
  grid.table.addEventListener("keydown", step);
  for (const kind of ["focusin", "mouseover"]) {
    grid.table.addEventListener(kind, (event) => {
      const cell = event.target.closest("tbody td");
      if (cell) describeCell(cell);
    });
  }
}
