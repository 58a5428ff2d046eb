// The page of one node: `#node=gpu003`.
function drawNode(node) {
  const place = document.getElementById("node");
  const counts = [...WORST_FIRST].map((letter) => [letter, checks.filter((check) => letterOf(check, node) === letter)]);
  const present = counts.filter(([, found]) => found.length);
  const facts = present.map(([letter, found]) => found.length + " " + WORDS[letter]).join(", ");
  fill(place,
    el("p", {}, el("a", { href: "#grid" }, "← the whole cluster")),
    el("h2", {}, el("span", { class: "badge " + classOf(worstLetter(node)) }, WORDS[worstLetter(node)] || "not checked"), " " + nameOf(node)),
    el("p", {}, facts || "no check was run on it"),
    hardwareOf(node),
    present.filter(([letter]) => "FIC".includes(letter)).map(([letter, found]) => alike(found, node).map((group) =>
      (letter === "I" && group.length > 1 ? missing(group, node) : group.map((check) => one(check, node, letter))))),
    (data.known[node] || []).map((number) => tableOf(data.tables[number])),
    present.filter(([letter]) => letter === "-" || letter === ".").map(([letter, found]) => rest(letter, found, node)),
    evidenceOf(node),
  );
  offerToCopy(place);
  const failed = place.querySelector("svg.hardware .F");
  if (failed) { // on a phone it is beyond the edge
    const around = failed.closest(".scroll");
    around.scrollLeft = failed.getBoundingClientRect().left - around.getBoundingClientRect().left - around.clientWidth / 2;
  }
}

function classOf(letter) {
  return { ".": "pass", "-": "na", " ": "na" }[letter] || letter;
}

// Checks of which the same was said, in the order of their first ones; each for itself where there was no room for it.
function alike(found, node) {
  const groups = new Map();
  for (const check of found) {
    const words = wordsOf(check, node);
    const key = words === NO_ROOM ? check : words;
    groups.set(key, [...(groups.get(key) || []), check]);
  }
  return [...groups.values()];
}

// One reason for which several checks are incomplete; each of them folded below it.
function missing(group, node) {
  return el("details", { class: WORDS.I },
    el("summary", {}, el("b", {}, WORDS.I), " " + wordsOf(group[0], node) + " (" + group.length + " checks)"),
    group.map((check) => one(check, node, "I", false)));
}

function one(check, node, letter, isOpen = true) {
  const [evidence, remedy] = byHand(check, node, letter);
  const rows = [
    ["see it", evidence && el("code", {}, evidence)],
    ["means", check.meaning],
    ["do", remedy],
    ["owner", check.owner && [check.owner, check.skill && [" ", el("small", {}, check.skill)]]],
    ["check", [data.site ? el("a", { href: data.site + "checks/" + encodeURIComponent(check.id) + ".html" }, check.id) : check.id, " ",
      el("code", {}, "clusterproof explain " + check.id)]],
  ].filter(([, words]) => words);
  return el("details", { class: WORDS[letter], open: isOpen },
    el("summary", {}, el("b", {}, WORDS[letter]), " " + check.title),
    el("p", { class: "message" }, wordsOf(check, node)),
    el("dl", {}, rows.map(([word, words]) => [el("dt", {}, word), el("dd", {}, words)])));
}

function rest(letter, found, node) {
  return el("details", { class: "rest" },
    el("summary", {}, found.length + " " + WORDS[letter]),
    el("ul", {}, found.map((check) => {
      const words = wordsOf(check, node);
      return el("li", {}, el("code", {}, check.id), " " + check.title + (words ? ": " + words : ""));
    })));
}

function tableOf([title, head, rows]) {
  return el("section", {}, el("h3", {}, title), el("div", { class: "scroll" }, el("table", {},
    head.length ? el("thead", {}, el("tr", {}, head.map((word) => el("th", { scope: "col" }, word)))) : "",
    el("tbody", {}, rows.map(([first, ...others]) =>
      el("tr", {}, el("th", { scope: "row" }, first), others.map((word) => el("td", {}, word))))))));
}

function evidenceOf(node) {
  if (!data.evidence.nodes[node]) return "";
  const [ending, values] = data.evidence.nodes[node];
  const collectors = data.evidence.endings[ending];
  if (!collectors.length) return "";
  const kept = values.length ? "" : el("p", {},
    "This page has no room for what it reported: it keeps the evidence of the nodes that something is wrong with. --record DIR keeps all.");
  return el("section", {}, el("h3", {}, "Evidence, as reported"), kept, collectors.map(([name, status, detail], at) => {
    const words = name + " " + status.replace("_", " ") + (detail ? ": " + detail : "");
    const value = values[at];
    if (value === undefined || value < 0) return el("p", { class: "collector" }, words);
    const place = el("pre");
    return el("details", {
      class: "collector",
      ontoggle: () => {
        if (!place.textContent) place.append(visible(asText(data.evidence.values[value])));
        reachByKeys();
      },
    }, el("summary", {}, words), place);
  }));
}

function asText(value) {
  return typeof value === "string" ? value : JSON.stringify(value, null, 1);
}
