// The picture of one node, drawn from its evidence, and the readings of its GPUs; what a finding names is red.
const GPU_PX = 112, BOX_PX = 100, SWITCH_Y = 4, GPU_Y = 84, BRIDGE_Y = 166, NIC_Y = 196, NIC_PX = 20;

function hardwareOf(node) {
  const found = data.pool[data.hardware[node]];
  if (!found) return "";
  const named = data.marks[node] || {};
  return el("section", { "aria-label": "hardware" }, el("h3", {}, "Hardware"),
    el("div", { class: "scroll" }, pictureOf(node, found, named)), el("p", { class: "legend" }, keysOf()), readings(node, found[0], named));
}

function keysOf() {
  return [["ok", "works, as far as was reported"], ["F", "failed"], ["C", "concern"], ["off", "no port is active"]].map(([name, words]) =>
    el("span", {}, el("span", { class: "part " + name }), " " + words));
}

// The worst letter of what findings say of a device, and the titles of their checks.
function markOf(named, device) {
  const marks = named[device] || [];
  const letter = ["F", "C"].find((one) => marks.some(([, of]) => of === one)) || "";
  return { letter, words: [...new Set(marks.map(([check]) => checks[check].title))].join(", "), ids: marks.map(([check]) => checks[check].id) };
}

// Each network device below the GPU whose bus is the nearest in its NUMA node; what has none stands apart.
function below(gpus, nics) {
  const columns = gpus.map(() => []);
  const apart = [];
  for (const nic of nics) {
    const near = gpus.map(([, bus, numa], at) => [numa === nic[2] && bus >= 0 && nic[1] >= 0 ? Math.abs(bus - nic[1]) : Infinity, at]).sort((a, b) => a[0] - b[0])[0];
    (near && near[0] < Infinity ? columns[near[1]] : apart).push(nic);
  }
  return { columns, apart };
}

function pictureOf(node, [gpus, nics, switches], named) {
  const ordered = [...gpus].sort((a, b) => a[0] - b[0]);
  const { columns, apart } = below(ordered, nics);
  const deep = Math.max(0, ...columns.map((column) => column.length));
  const across = Math.max(ordered.length, 4);
  const width = across * GPU_PX + 4, apartY = NIC_Y + deep * NIC_PX + 26;
  const perLine = across, height = apartY + Math.ceil(apart.length / perLine) * NIC_PX + (apart.length ? 22 : 0);
  const down = [];
  const parts = [numaBands(ordered, apartY), switchesOf(switches, ordered, width)];
  ordered.forEach((gpu, at) => parts.push(gpuOf(node, gpu, at * GPU_PX + 6, named, down), bridgeOf(gpu, columns[at], at * GPU_PX + 6),
    columns[at].map((nic, row) => nicOf(nic, at * GPU_PX + 6, NIC_Y + row * NIC_PX, named))));
  if (apart.length) parts.push(svg("text", { x: 6, y: apartY + 12, class: "small" }, "network devices whose place was not reported"));
  apart.forEach((nic, at) => parts.push(nicOf(nic, at % perLine * GPU_PX + 6, apartY + 20 + Math.floor(at / perLine) * NIC_PX, named)));
  const words = [counted(undefined, gpus.length, "GPU"), counted(undefined, nics.length, "network device"), switches ? switches + " NVSwitches" : "",
    ...down].filter(Boolean).join(", ");
  return svg("svg", { class: "hardware", width, height, viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": visible(nameOf(node) + ": " + words) }, parts);
}

function numaBands(gpus, bottom) {
  const runs = [];
  gpus.forEach(([, , numa], at) => {
    if (runs.length && runs[runs.length - 1].numa === numa) runs[runs.length - 1].last = at;
    else runs.push({ numa, first: at, last: at });
  });
  return runs.filter(({ numa }) => numa >= 0).map(({ numa, first, last }) => [
    svg("rect", { class: "numa", x: first * GPU_PX + 2, y: GPU_Y - 8, width: (last - first + 1) * GPU_PX - 4, height: bottom - GPU_Y + 4, rx: 6 }),
    svg("text", { class: "small", x: first * GPU_PX + 8, y: bottom - 10 }, "NUMA node " + numa),
  ]);
}

function switchesOf(count, gpus, width) {
  if (!gpus.some(([, , , links]) => links)) return [];
  // One box: nodes do not report which link leads to which switch.
  return [
    svg("rect", { class: "part ok", x: 4, y: SWITCH_Y, width: width - 14, height: 26, rx: 4 }),
    svg("text", { x: width / 2, y: SWITCH_Y + 17, class: "middle" }, count ? count + (count > 1 ? " NVSwitches" : " NVSwitch") : "NVLink: no NVSwitch in this node"),
  ];
}

// `17 of 18`: how many links are up; `17 of 18, 1 unread`, where a GPU's box has no room for the noun.
function linksOf(links, of, noun) {
  const [up, unread] = ["1", "?"].map((state) => links.split(state).length - 1);
  return up + of + links.length + (unread ? ", " + unread + " unread" : noun);
}

function gpuOf(node, [index, , , links, lanes, lanesMost, answers], x, named, down) {
  const { letter, words } = markOf(named, "GPU " + index);
  const state = letter || (answers ? "ok" : "F");
  const lines = [...links].map((link, at) => [link, x + 8 + (BOX_PX - 16) * (links.length > 1 ? at / (links.length - 1) : 0.5), at]);
  const path = (of) => lines.filter(([link]) => link === of).map(([, at]) => `M${at.toFixed(1)} ${SWITCH_Y + 26}V${GPU_Y}`).join("");
  const dead = lines.filter(([link]) => link === "0");
  if (dead.length) down.push("NVLink " + dead.map(([, , at]) => at).join(", ") + " of GPU " + index + " inactive");
  if (!answers) down.push("GPU " + index + " does not answer");
  const value = (title) => {
    const measure = data.gpus.find(([name]) => name === title);
    const one = measure && data.pool[measure[3][node]][index];
    return one === null || one === undefined ? "" : one + " " + measure[1];
  };
  const second = answers ? [value("temperature"), value("power")].filter(Boolean).join("  ") : "no answer";
  return svg("g", {}, svg("title", {}, "GPU " + index + (words ? ": " + words : "")),
    lines.length ? svg("path", { class: "link", d: path("1") }) : "", dead.length ? svg("path", { class: "link dead", d: path("0") }) : "",
    svg("rect", { class: "part " + state, x, y: GPU_Y, width: BOX_PX, height: 60, rx: 5 }),
    svg("text", { class: "strong", x: x + 8, y: GPU_Y + 18 }, "GPU " + index), state !== "ok" ? svg("text", { class: "strong end", x: x + BOX_PX - 8, y: GPU_Y + 18 }, state) : "",
    svg("text", { x: x + 8, y: GPU_Y + 35 }, second),
    links ? svg("text", { x: x + 8, y: GPU_Y + 51, class: dead.length ? "bad" : "" }, linksOf(links, "/", " NVLinks")) : "",
    svg("path", { class: "link" + (lanes >= 0 && lanes < lanesMost ? " dead" : ""), d: `M${x + BOX_PX / 2} ${GPU_Y + 60}V${BRIDGE_Y}` }),
    lanes > 0 ? svg("text", { class: "small", x: x + BOX_PX / 2 + 5, y: BRIDGE_Y - 7 }, "x" + lanes + (lanes < lanesMost ? " of x" + lanesMost : "")) : "");
}

function bridgeOf([, bus], nics, x) {
  const buses = [bus, ...nics.map((nic) => nic[1])].filter((one) => one >= 0).sort((a, b) => a - b);
  if (!buses.length) return [];
  const hex = (one) => one.toString(16).padStart(2, "0");
  const ends = [...new Set([hex(buses[0]), hex(buses[buses.length - 1])])].join("–");
  return [svg("rect", { class: "bridge", x, y: BRIDGE_Y, width: BOX_PX, height: 22, rx: 4 }), svg("text", { class: "middle", x: x + BOX_PX / 2, y: BRIDGE_Y + 15 }, "PCIe " + ends)];
}

function nicOf([name, , , state], x, y, named) {
  const { letter, words } = markOf(named, name);
  const is = letter || (!state || /ACTIVE/.test(state) ? "ok" : "off"); // a check may allow that a port is not used
  return svg("g", {}, svg("title", {}, [name, state, words].filter(Boolean).join(": ")),
    svg("rect", { class: "part " + is, x, y, width: BOX_PX, height: NIC_PX - 4, rx: 3 }), svg("text", { x: x + 6, y: y + 12, class: "small" }, within(name, 13) + ({ ok: "", off: " " + state.split(",")[0] }[is] ?? " " + is)));
}

// Which reading a finding speaks of, by the name of its check.
const OF_READING = [["temperature", /therm|temperature/], ["power", /power/], ["graphics clock", /clock|throttl/], ["memory in use", /memory_free|memory_in_use|stray/],
  ["uncorrected ECC errors", /uncorrected/], ["corrected ECC errors", /\.(no_)?corrected|sram|ecc_rate/], ["NVLink errors", /nvlink_err/],
  ["NVLinks", /nvlink|fabric/], ["PCIe", /pcie/], ["Xids", /xid/]];

function readings(node, gpus, named) {
  const measures = data.gpus.map(([title, unit, , rows]) => [title, unit, data.pool[rows[node]]]);
  const heads = [...measures.map(([title, unit]) => [title, title + (unit && ", " + unit)]), ["NVLinks", "NVLinks"], ["PCIe", "PCIe"], ["Xids", "Xids"]];
  const xids = data.xids[node] || {};
  const row = ([index, , , links, lanes, lanesMost]) => {
    const { letter, words, ids } = markOf(named, "GPU " + index);
    const own = [...measures.map(([, , values]) => values[index] ?? "–"), links ? linksOf(links, " of ", "") : "–",
      lanes > 0 ? "x" + lanes + (lanes < lanesMost ? " of x" + lanesMost : "") : "–", (xids[index] || []).join(", ") || "–"];
    const isBad = (title) => ids.some((id) => (OF_READING.find(([, takes]) => takes.test(id)) || [])[0] === title);
    return el("tr", {}, el("th", { scope: "row" }, "GPU " + index), el("td", {}, letter && el("span", { class: "badge " + letter }, letter), words && " " + words),
      heads.map(([title], at) => el("td", { class: "number" + (letter && isBad(title) ? " " + letter : "") }, String(own[at]))));
  };
  return el("div", { class: "scroll" }, el("table", { class: "readings" }, el("caption", {}, "GPUs, as they reported themselves"),
    el("thead", {}, el("tr", {}, el("th", { scope: "col" }, "GPU"), el("th", { scope: "col" }, "findings"), heads.map(([, words]) => el("th", { scope: "col" }, words)))),
    el("tbody", {}, [...gpus].sort((a, b) => a[0] - b[0]).map(row))));
}
