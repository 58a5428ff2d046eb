// Search, filters and their address, which page is shown, what is copied, and what opens for paper.
const search = document.getElementById("search");
const shown = document.getElementById("shown");
const boxes = [...document.querySelectorAll(".tools input[name]")];
const subsystem = document.getElementById("subsystem");
const owner = document.getElementById("owner");
const findings = [...document.querySelectorAll("#findings > details, #gaps > details")];
const byId = new Map(checks.map((check) => [check.id, check]));

function filterNow() {
  const terms = search.value.toLowerCase().split(/\s+/).filter(Boolean);
  const letters = boxes.filter((box) => box.checked).map((box) => box.name);
  return {
    terms,
    letters,
    takesCheck: (check) => (!subsystem.value || check.subsystem === subsystem.value) && (!owner.value || check.skill === owner.value),
    takesNode: (node, among) => {
      const worst = among.some((check) => letters.includes(letterOf(check, node)));
      const isFit = letters.length === boxes.length && !subsystem.value && !owner.value && worstOf(node, among) !== " ";
      return (worst || isFit) && terms.every((term) => haystack(node).includes(term));
    },
  };
}

function takesFinding(finding, filter) {
  const letter = { fail: "F", concern: "C", incomplete: "I" }[finding.className];
  const about = (finding.dataset.checks || "").split(" ").map((id) => byId.get(id)).filter(Boolean);
  if (!filter.letters.includes(letter) || !about.some(filter.takesCheck)) return false;
  const text = finding.textContent.toLowerCase();
  return filter.terms.every((term) => text.includes(term) || data.nodes.some((name, node) =>
    name.toLowerCase().includes(term) && about.some((check) => letterOf(check, node) === letter)));
}

// A link to what is shown now: #q=WORDS, with show, subsystem and owner where they leave something out.
function keepInAddress() {
  const asked = new URLSearchParams({ q: search.value });
  const letters = boxes.filter((box) => box.checked).map((box) => box.name).join("");
  if (letters.length < boxes.length) asked.set("show", letters);
  if (subsystem.value) asked.set("subsystem", subsystem.value);
  if (owner.value) asked.set("owner", owner.value);
  const isPlain = asked.toString() === "q=";
  if (!isPlain || location.hash.startsWith("#q=")) history.replaceState(null, "", "#" + (isPlain ? "" : asked));
}

function takeFromAddress() {
  if (!location.hash.startsWith("#q=")) return;
  const asked = new URLSearchParams(location.hash.slice(1));
  search.value = asked.get("q");
  for (const box of boxes) box.checked = !asked.has("show") || asked.get("show").includes(box.name);
  subsystem.value = asked.get("subsystem") || "";
  owner.value = asked.get("owner") || "";
}

function filterAgain() {
  keepInAddress();
  apply();
}

function apply() {
  const filter = filterNow();
  let count = 0;
  for (const finding of findings) {
    finding.hidden = !takesFinding(finding, filter);
    count += !finding.hidden;
  }
  grid.shown = PAGE;
  drawGrid(filter);
  const nodes = grid.rows.reduce((sum, { nodes: alike }) => sum + alike.filter((node) => node !== CLUSTER).length, 0);
  shown.value = count + " of " + findings.length + " findings, " + nodes + " of " + data.nodes.length + " nodes";
}

function show() {
  const asked = /^#node=(.*)$/.exec(location.hash);
  let node = -1;
  try {
    node = asked ? data.nodes.indexOf(decodeURIComponent(asked[1])) : -1;
  } catch { /* a hash that somebody typed */ }
  document.getElementById("main").hidden = node >= 0;
  const place = document.getElementById("node");
  place.hidden = node < 0;
  if (node < 0) {
    const target = location.hash.length > 1 && document.getElementById(location.hash.slice(1));
    if (target) target.scrollIntoView();
    return;
  }
  drawNode(node);
  place.focus();
  scrollTo(0, 0);
}

function options(select, words) {
  for (const word of [...new Set(words)].filter(Boolean).sort()) select.append(el("option", { value: word }, word));
}

function legend() {
  const place = document.querySelector(".legend");
  if (!place) return;
  fill(place, [...WORST_FIRST].map((letter) => el("span", {},
    el("span", { class: "cell " + classOf(letter) }, letter === "." ? "·" : letter === "-" ? "–" : letter), " " + WORDS[letter])));
}

// Where the browser lets a page copy: a button behind each command.
function offerToCopy() {
  if (!navigator.clipboard) return;
  for (const command of document.querySelectorAll("#findings dd > code, main dd > pre")) {
    const button = el("button", { type: "button", class: "copy", "aria-label": "copy the command", onclick: () =>
      navigator.clipboard.writeText(command.textContent).then(() => fill(button, "copied"), () => fill(button, "not allowed")) }, "copy");
    command.after(" ", button);
  }
}

options(subsystem, checks.map((check) => check.subsystem));
options(owner, checks.map((check) => check.skill));
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
});
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
legend();
offerToCopy();
takeFromAddress();
apply();
show();
