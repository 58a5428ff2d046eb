// Search, filters and their address, which page is shown, what is copied, and what opens for paper.
const FIT = "fit", FIT_LETTERS = ".C"; // the tile of the nodes that are fit, and their worst letters
const search = document.getElementById("search");
const shown = document.getElementById("shown");
const boxes = [...document.querySelectorAll(".tools input[name]")];
const subsystem = document.getElementById("subsystem");
const owner = document.getElementById("owner");
const findings = [...document.querySelectorAll("#findings > details, #gaps > .card > details")];
const tiles = [...document.querySelectorAll(".tiles a")];
const actions = new Map(data.actions.map(([name, numbers, ranges]) => [name, { checks: new Set(numbers), nodes: new Set(numbersOf(ranges)) }]));
let action = ""; // a tile that was chosen
const byId = new Map(checks.map((check) => [check.id, check]));

// Words that are all to be found, and nodesets as sets of nodes; a nodeset may have spaces behind its commas.
function termsOf(text) {
  return text.toLowerCase().split(/(?<!,)\s+(?!,)/).flatMap((words) =>
    nodesOf(words.replace(/\s/g, "")) || words.split(/\s+/).filter(Boolean));
}

function filterNow() {
  const terms = termsOf(search.value);
  const letters = boxes.filter((box) => box.checked).map((box) => box.name);
  const asks = actions.get(action);
  return {
    terms,
    letters,
    takesAction: (finding) => !action || finding.dataset.actions.split("|").includes(action),
    takesCheck: (check) => (!subsystem.value || check.subsystem === subsystem.value) && (!owner.value || check.owner === owner.value)
      && (!asks || asks.checks.has(check.number)),
    takesNode: (node, among) => {
      if (asks && !asks.nodes.has(node)) return false;
      if (action === FIT && (node === CLUSTER || !FIT_LETTERS.includes(worstLetter(node)))) return false;
      const worst = among.some((check) => letters.some((letter) => finds(check, node, letter)));
      const isFit = letters.length === boxes.length && !subsystem.value && !owner.value && worstOf(node, among) !== " ";
      return (worst || isFit) && terms.every((term) => (term.has ? term.has(node) : haystack(node).includes(term)));
    },
  };
}

function takesFinding(finding, filter) {
  const letter = { fail: "F", concern: "C", incomplete: "I" }[finding.className];
  const about = (finding.dataset.checks || "").split(" ").map((id) => byId.get(id)).filter(Boolean);
  if (!filter.takesAction(finding) || !filter.letters.includes(letter) || !about.some(filter.takesCheck)) return false;
  const text = finding.textContent.toLowerCase();
  const isOf = (node) => about.some((check) => finds(check, node, letter));
  return filter.terms.every((term) => (term.has ? [...term].some(isOf)
    : text.includes(term) || data.nodes.some((_, node) => isOf(node) && identityOf(node).includes(term))));
}

// What is shown now: q=WORDS, with show, subsystem, owner and action where they leave something out.
function filterWords() {
  const asked = new URLSearchParams({ q: search.value });
  const letters = boxes.filter((box) => box.checked).map((box) => box.name).join("");
  if (letters.length < boxes.length) asked.set("show", letters);
  if (subsystem.value) asked.set("subsystem", subsystem.value);
  if (owner.value) asked.set("owner", owner.value);
  if (action) asked.set("action", action);
  return asked.toString() === "q=" ? "" : asked.toString();
}

// A link to it; of a section or a node, whose address has no room for it, the browser's history keeps it.
function keepInAddress() {
  const words = filterWords();
  const isPlace = location.hash && !location.hash.startsWith("#q=");
  history.replaceState(words, "", isPlace && !words ? location.hash : "#" + words);
}

function takeFromAddress() {
  const isPlace = location.hash && !location.hash.startsWith("#q=");
  if (isPlace && typeof history.state !== "string") return history.replaceState(filterWords(), "", location.hash);
  const asked = new URLSearchParams(isPlace ? history.state : location.hash.slice(1));
  search.value = asked.get("q") || "";
  for (const box of boxes) box.checked = !asked.has("show") || asked.get("show").includes(box.name);
  subsystem.value = asked.get("subsystem") || "";
  owner.value = asked.get("owner") || "";
  action = actions.has(asked.get("action")) || asked.get("action") === FIT ? asked.get("action") : "";
}

function filterAgain() {
  keepInAddress();
  apply();
}

// What speaks of some nodes only, as a row of the trend: hidden where the filter leaves all of them out.
const ofNodes = [...document.querySelectorAll("#main [data-nodes]")].map((one) => {
  const names = one.dataset.nodes.toLowerCase();
  const found = nodesOf(names) || (numbered.has(names) ? new Set([numbered.get(names)]) : null);
  return [one, found && [...found]];
});
function hideOthers(chosen) {
  const isPart = chosen.size < data.nodes.length;
  for (const [one, nodes] of ofNodes) one.toggleAttribute("hidden", Boolean(isPart && nodes && !nodes.some((node) => chosen.has(node))));
}

// What stands in a section of which the filter leaves nothing.
const nothing = ["findings", "gaps"].map((id) => document.getElementById(id))
  .filter((section) => section && findings.some((one) => section.contains(one)))
  .map((section) => [section, section.appendChild(el("p", { hidden: true }, "The filter leaves out all of them."))]);

function apply() {
  const filter = filterNow();
  let count = 0;
  for (const finding of findings) {
    finding.hidden = !takesFinding(finding, filter);
    count += !finding.hidden;
  }
  for (const [section, note] of nothing) note.hidden = findings.some((one) => section.contains(one) && !one.hidden);
  for (const card of document.querySelectorAll(".card")) card.hidden = ![...card.querySelectorAll(":scope > details")].some((one) => !one.hidden);
  grid.shown = PAGE;
  drawGrid(filter);
  const chosen = new Set(grid.rows.flatMap(({ nodes }) => nodes).filter((node) => node !== CLUSTER));
  dimMap(chosen);
  hideOthers(chosen);
  drawGpusSoon(data.nodes.map((_, node) => node).filter((node) => chosen.has(node)));
  const nodes = data.nodes.length ? ", " + counted(chosen.size, data.nodes.length, "node") : "";
  const isFiltered = filterWords() !== "";
  shown.value = (action ? action + ": " : "") + counted(count, findings.length, "finding") + nodes;
  document.body.classList.toggle("filtered", isFiltered);
  document.getElementById("all").hidden = !isFiltered;
  for (const tile of tiles) {
    if (tile.dataset.action === action) tile.setAttribute("aria-current", "true");
    else tile.removeAttribute("aria-current");
  }
  reachByKeys();
}

function show() {
  const asked = /^#node=(.*)$/.exec(location.hash);
  let name = asked ? asked[1] : "";
  try {
    name = decodeURIComponent(name);
  } catch { /* a hash typed by hand */ }
  const node = asked ? data.nodes.indexOf(name) : -1;
  const stranger = document.getElementById("no-node");
  if (stranger) stranger.remove();
  if (asked && node < 0) document.getElementById("main").prepend(el("p", { id: "no-node", role: "status" }, within(name, 60) + " is not in this run"));
  const wasHidden = document.getElementById("main").hidden;
  document.getElementById("main").hidden = node >= 0;
  if (wasHidden && node < 0) apply(); // what is as wide as the window was drawn in none
  const place = document.getElementById("node");
  place.hidden = node < 0;
  document.body.classList.toggle("of-node", node >= 0);
  if (node < 0) {
    if (wasHidden) comeBack();
    const target = location.hash.length > 1 && document.getElementById(location.hash.slice(1));
    if (target) target.scrollIntoView();
    return;
  }
  shownNode = location.hash;
  drawNode(node);
  reachByKeys();
  place.focus();
  scrollTo(0, 0);
}

// From a node's page to the link that leads there, else to the top: who goes by keys goes on where they were.
let shownNode = "";
function comeBack() {
  const link = [...document.querySelectorAll("#main a")].find((one) => one.hash === shownNode && one.checkVisibility());
  (link || document.getElementById("main")).focus();
}

function options(select, words) {
  for (const word of [...new Set(words)].filter(Boolean).sort()) select.append(el("option", { value: word }, word));
}

function legend() {
  const place = document.querySelector("#grid .legend");
  if (!place) return;
  fill(place, [...WORST_FIRST].map((letter) => el("span", {},
    el("span", { class: "cell " + classOf(letter) }, letter === "." ? "·" : letter === "-" ? "–" : letter), " " + WORDS[letter])));
}

// Where the browser lets a page copy: a button behind each command.
function offerToCopy(place) {
  if (!navigator.clipboard) return;
  for (const command of place.querySelectorAll("dd > code, dd > pre")) {
    const said = (words) => {
      button.setAttribute("aria-label", words);
      fill(button, words);
    };
    const button = el("button", { type: "button", class: "copy", "aria-label": "copy the command", "aria-live": "polite", onclick: () =>
      navigator.clipboard.writeText(command.textContent).then(() => said("copied"), () => said("not allowed")) }, "copy");
    command.after(" ", button);
  }
}

options(subsystem, checks.map((check) => check.subsystem));
options(owner, checks.map((check) => check.owner));
for (const tile of tiles) tile.href = "#q=&action=" + encodeURIComponent(tile.dataset.action);
for (const tools of document.querySelectorAll(".tools")) tools.hidden = false;
search.addEventListener("input", filterAgain);
for (const one of [subsystem, owner, ...boxes]) one.addEventListener("change", filterAgain);
document.querySelector("form.tools").addEventListener("submit", (event) => event.preventDefault());
const allChecks = document.getElementById("all-checks");
if (allChecks) allChecks.addEventListener("change", apply);
addEventListener("keydown", (event) => {
  if (event.key === "/" && !/^(INPUT|SELECT)$/.test(document.activeElement.tagName)) {
    event.preventDefault();
    search.focus();
  }
  if (!event.target.closest("input, select, table, #map-places") && !event.ctrlKey && !event.metaKey && !event.altKey) walk(event.key);
});

// Where no field or table has the keys: j and k go through findings; on a node's page ← and → to its neighbours, Escape back.
function walk(key) {
  const asked = /^#node=(.*)$/.exec(location.hash);
  const by = { ArrowLeft: -1, ArrowRight: 1 }[key];
  if (asked && by) {
    const next = data.nodes[data.nodes.findIndex((name) => encodeURIComponent(name) === asked[1]) + by];
    if (next !== undefined) location.hash = "#node=" + encodeURIComponent(next);
  } else if (asked && key === "Escape") {
    location.hash = "#grid";
  } else if (!asked && (key === "j" || key === "k")) {
    const shownNow = findings.filter((finding) => finding.checkVisibility()).map((finding) => finding.querySelector("summary"));
    const at = shownNow.indexOf(document.activeElement);
    const next = shownNow[at < 0 ? 0 : at + (key === "j" ? 1 : -1)];
    if (next) next.focus();
  }
}
let closed = [];
addEventListener("beforeprint", () => {
  closed = [...document.querySelectorAll("details:not([open])")].filter((one) => !one.matches(".collector, .rest"));
  for (const one of closed) one.open = true;
});
addEventListener("afterprint", () => { for (const one of closed) one.open = false; });
addEventListener("hashchange", () => {
  takeFromAddress();
  apply();
  show();
});
// What scrolls by itself is reached by keys.
function reachByKeys() {
  for (const one of document.querySelectorAll(".scroll, #gpu-bands, #grid-detail, .collector pre")) {
    if (one.scrollWidth > one.clientWidth || one.scrollHeight > one.clientHeight) one.tabIndex = 0;
    else one.removeAttribute("tabindex");
  }
}

addEventListener("resize", reachByKeys);
setTimeout(reachByKeys);
legend();
offerToCopy(document.getElementById("main"));
takeFromAddress();
apply();
show();
