"use strict";
// What all parts of the page share: the data, elements made of text alone, and nodesets.
const data = JSON.parse(document.getElementById("data").textContent);
const CLUSTER = data.nodes.length; // its number, behind those of the nodes
const WORDS = { F: "fail", I: "incomplete", C: "concern", ".": "pass", "-": "not applicable" };
const WORST_FIRST = "FIC.-";
const checks = data.checks.map(([id, title, subsystem, owner, skill, evidence, meaning, remedy], number) => ({
  id, title, subsystem, owner, skill, evidence, meaning, remedy, number, letters: data.letters[number], further: {},
}));

// Characters that steer instead of being read, made visible.
const STEERING = /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u00ad\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb]/g;
function visible(text) {
  return String(text).replace(STEERING, (char) => "\\u" + char.charCodeAt(0).toString(16).padStart(4, "0"));
}

function el(tag, attributes, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes || {})) {
    if (name === "onclick" || name === "ontoggle") made.addEventListener(name.slice(2), value);
    else if (value !== false && value !== undefined) made.setAttribute(name, value === true ? "" : value);
  }
  return fill(made, ...children);
}

const SVG = "http://www.w3.org/2000/svg";
function svg(tag, attributes, ...children) {
  const made = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  return fill(made, ...children);
}

// What an element is to hold, in place of what it holds: elements, and texts as texts.
function fill(place, ...children) {
  const present = children.flat(3).filter((child) => child !== null && child !== undefined && child !== "");
  place.replaceChildren(...present.map((child) => (child.nodeType ? child : visible(child))));
  return place;
}

function nameOf(node) {
  return node === CLUSTER ? data.whole + " " + data.cluster : data.nodes[node];
}

// `1 node`, `3 of 1,600 nodes`.
function counted(some, all, noun) {
  const [few, many] = [some, all].map((count) => count?.toLocaleString("en"));
  return (few === undefined ? "" : few + " of ") + many + " " + noun + (all === 1 ? "" : "s");
}

function letterOf(check, node) {
  return check.letters[node];
}

// Whether a check found something of this letter on a node: beside something worse, or on a pair of nodes, no cell shows it.
for (const [number, letter, where] of data.further) checks[number].further[letter] = new Set(numbersOf(where));
function finds(check, node, letter) {
  return letterOf(check, node) === letter || Boolean(check.further[letter]?.has(node));
}

function worstOf(node, among) {
  let worst = 5;
  for (const check of among) {
    const rank = WORST_FIRST.indexOf(check.letters[node]);
    if (rank >= 0 && rank < worst) worst = rank;
  }
  return worst === 5 ? " " : WORST_FIRST[worst];
}

// The numbers that `0-3,7` stands for.
function numbersOf(ranges) {
  return (ranges ? ranges.split(",") : []).flatMap((range) => {
    const [first, last] = range.split("-").map(Number);
    return Array.from({ length: (last === undefined ? first : last) - first + 1 }, (_, at) => first + at);
  });
}

// The worst letter of a node among all checks.
const worstKnown = [];
function worstLetter(node) {
  return worstKnown[node] ?? (worstKnown[node] = worstOf(node, checks));
}

// `gpu[001-003,005]`: the last number of each name folded.
function fold(names) {
  const shapes = new Map();
  for (const name of names) {
    const parts = /^(.*?)(\d+)(\D*)$/s.exec(name);
    const key = parts ? JSON.stringify([parts[1], parts[3], parts[2].length]) : name;
    if (!shapes.has(key)) shapes.set(key, { parts, numbers: [] });
    if (parts) shapes.get(key).numbers.push(parts[2]);
  }
  return [...shapes].map(([key, { parts, numbers }]) => {
    if (!parts) return key;
    if (numbers.length === 1) return parts[1] + numbers[0] + parts[3];
    return parts[1] + "[" + ranges(numbers.sort((a, b) => a - b)) + "]" + parts[3];
  }).join(",");
}

function ranges(numbers) {
  const runs = [];
  for (const number of numbers) {
    const last = runs[runs.length - 1];
    if (last && Number(number) === Number(last[1]) + 1) last[1] = number;
    else runs.push([number, number]);
  }
  return runs.map(([first, last]) => (first === last ? first : first + "-" + last)).join(",");
}

// The same in so many characters: the first names whole, and how many more there are.
function foldWithin(names, most) {
  const all = fold(names);
  if (all.length <= most) return all;
  let least = 1, above = names.length;
  while (above - least > 1) {
    const middle = Math.floor((least + above) / 2);
    if (fold(names.slice(0, middle)).length <= most) least = middle;
    else above = middle;
  }
  return within(fold(names.slice(0, least)), most) + " and " + (names.length - least).toLocaleString("en") + " more";
}

// A nodeset that is broken between names, not within one.
function breakable(nodes) {
  return nodes.split(/(?<=,)/).flatMap((part) => [part, el("wbr")]);
}

// The nodes that `gpu[001-016,020]` or `gpu001,gpu007` names, by their numbers; null where it is no nodeset, or names none of them.
const MAX_BRACKETS = 4;
const numbered = new Map(data.nodes.map((name, node) => [name.toLowerCase(), node]));
function nodesOf(text) {
  const found = new Set();
  if (!/[,[]/.test(text)) return null;
  for (const part of text.toLowerCase().split(/,(?![^[]*\])/)) {
    const pieces = part.split(/\[([^\]]*)\]/); // text, ranges, text, ranges, …, text
    const brackets = pieces.filter((_, place) => place % 2).map(rangesOf);
    if (!part || brackets.includes(null) || brackets.length > MAX_BRACKETS || part.split("[").length !== brackets.length + 1) return null;
    if (!brackets.length) {
      if (numbered.has(part)) found.add(numbered.get(part));
      continue;
    }
    const name = new RegExp("^" + pieces.map((piece, place) => (place % 2 ? "(\\d+)" : escaped(piece))).join("") + "$");
    data.nodes.forEach((known, node) => {
      const numbers = name.exec(known.toLowerCase());
      if (numbers && brackets.every((ranges, place) => ranges.some((takes) => takes(Number(numbers[place + 1]))))) found.add(node);
    });
  }
  return found.size ? found : null;
}

// What takes a number, for each range of `001-016,020`; null where these are none. Zeros in front need not be typed.
function rangesOf(text) {
  const ranges = text.split(",").map((range) => /^(\d+)(?:-(\d+)(?:\/(\d+))?)?$/.exec(range));
  if (ranges.includes(null)) return null;
  const numbers = ranges.map(([, first, last, step]) => [first, last ?? first, step ?? 1].map(Number));
  if (numbers.some(([first, last, step]) => last < first || step < 1)) return null;
  return numbers.map(([first, last, step]) => (number) => number >= first && number <= last && (number - first) % step === 0);
}

function escaped(text) {
  return text.replace(/[.*+?^${}()|[\]\\]/g, "\\$&");
}

function within(text, most) {
  return text.length <= most ? text : text.slice(0, most) + "…";
}

// What checks said: for each node the entries of data.words that speak of it.
const said = Array.from({ length: CLUSTER + 1 }, () => new Map());
for (const [check, letter, words, where, evidence, remedy] of data.words) {
  for (const node of numbersOf(where)) {
    if (!said[node].has(check)) said[node].set(check, []);
    said[node].get(check).push([letter, words, evidence, remedy]);
  }
}

// A text for one node: what stands in the data for the name of any is its own.
const NO_ROOM = "(said in results.jsonl)";
function textFor(node, text) {
  return text.replaceAll("\0", () => data.nodes[node]);
}

// How to see on a node by hand what a check said of it, and what to do about it.
function byHand(check, node, letter) {
  const own = (said[node].get(check.number) || []).find(([of, , evidence]) => of === letter && evidence !== undefined);
  const texts = own ? own.slice(2) : ["", ""];
  return [check.evidence, check.remedy].map((usual, at) => (texts[at] === null ? NO_ROOM : textFor(node, texts[at] || usual)));
}

function wordsOf(check, node) {
  const entries = said[node].get(check.number) || [];
  return entries.map(([, words]) => textFor(node, words) || NO_ROOM).join("\n");
}

// By what a node and its GPUs are known elsewhere, as in a ticket.
const KNOWN_BY = ["instance id", "serial", "host name", "UUID"];
function identityOf(node) {
  if (!identityOf.known.has(node)) {
    const values = (data.known[node] || []).flatMap((number) => {
      const [, head, rows] = data.tables[number];
      return rows.flatMap((row) => (head.length ? row.filter((_, at) => KNOWN_BY.includes(head[at])) : KNOWN_BY.includes(row[0]) ? row.slice(1) : []));
    });
    identityOf.known.set(node, [nameOf(node), ...values].join("\n").toLowerCase());
  }
  return identityOf.known.get(node);
}
identityOf.known = new Map();

function haystack(node) {
  if (!haystack.known.has(node)) {
    const tables = (data.known[node] || []).map((number) => JSON.stringify(data.tables[number]));
    const found = checks.filter((check) => "FIC".includes(letterOf(check, node)));
    const words = found.map((check) => [check.id, check.title, check.owner, wordsOf(check, node)].join(" "));
    haystack.known.set(node, [nameOf(node), ...tables, ...words].join("\n").toLowerCase());
  }
  return haystack.known.get(node);
}
haystack.known = new Map();
