// Draws a topology: the layout as SVG at a size that can be read, with the route of a message emphasised, and zooming.

import { h, s } from "./dom.js";
import { count, cut, rate } from "./format.js";
import { label, pair } from "./graph.js";
import { layout } from "./layers.js";
import { exchangeLink, link as linkTo, queueLink } from "./routes.js";

const NAME = "600 13px";
const SMALL = "12px";
const ZOOMS = [0.5, 0.7, 1, 1.4, 2];
const WHOLE = 2; // the index of 1
const LONGEST = 60; // characters that are measured
const READABLE = 14; // pixels from a label to the next, at least

let zoom = WHOLE; // kept while the page is open; null: as wide as the page

/** `way` has the ids and pairs on the route of a message, or is null; `focus` is the id of the node that is looked at. */
export function drawing({ nodes, links }, host, way, focus = "") {
  const placed = layout(nodes, links, roomThere());
  const { wide } = placed;
  const svg = s(
    "svg",
    {
      viewBox: `0 0 ${placed.width} ${placed.height}`,
      role: "group",
      "aria-label": `Drawing of exchanges and queues of ${host}`,
      class: way ? "topology explained" : "topology",
    },
    arrows(),
    placed.links.map((each) => line(each, way, wide)),
    placed.links.map((each) => lettering(each, way, wide, placed.column - wide)), // no line runs through a key
    nodes.map((node) => box(node, placed.nodes.get(node.id), host, way, wide, focus)),
  );
  scale(svg);
  return h(
    "div",
    { class: "canvas" },
    h(
      "div",
      { class: "row zoom" },
      finding(host, nodes),
      button("−", "Smaller", (event) => step(event, -1)),
      button("+", "Larger", (event) => step(event, 1)),
      button("Fit", "As wide as the page", fit),
      legend(),
    ),
    h(
      "div",
      {
        class: "scroll drawn",
        tabindex: "0",
        role: "group",
        "aria-label": `Drawing of ${host}`,
        onpointerdown: dragged,
      },
      svg,
    ),
  );
}

let pen = null; // measures text

/** Returns the beginning of a text that is no wider than `room`, in the font of the page. */
function fitted(text, font, room) {
  pen ??= document.createElement("canvas").getContext("2d");
  pen.font = `${font} ${getComputedStyle(document.body).fontFamily}`;
  let length = Math.min(Array.from(text).length, LONGEST);
  let shown = cut(text, length);
  while (length > 1 && pen.measureText(shown).width > room) shown = cut(text, (length -= 1));
  return shown;
}

/** Returns the width that the page has for a drawing. */
function roomThere() {
  const shown = document.querySelector(".drawn")?.clientWidth;
  if (shown) return shown;
  const content = document.querySelector(".content")?.clientWidth ?? innerWidth;
  return Math.max(content - (innerWidth <= 768 ? 28 : 92), 240);
}

const button = (text, title, onclick) =>
  h("button", { type: "button", title, "aria-label": `${text} ${title}`, onclick }, text);

// Searching marks what has the text in its name, and goes to the first of them.
const finding = (host, nodes) =>
  h("input", {
    type: "search",
    class: "search",
    placeholder: "Find in the drawing",
    "aria-label": `Find in the drawing of ${host}`,
    "data-key": `find ${host}`,
    spellcheck: "false",
    autocapitalize: "none",
    oninput: (event) => find(event.currentTarget, nodes),
    onkeydown: (event) => event.key === "Enter" && open(event.currentTarget),
  });

const boxes = (input) => [...input.closest(".canvas").querySelectorAll(".node")];

function find(input) {
  const text = input.value.trim().toLowerCase();
  const found = boxes(input).filter((each) => {
    const suits = text !== "" && each.dataset.id.slice(2).toLowerCase().includes(text);
    each.classList.toggle("found", suits);
    return suits;
  });
  input.classList.toggle("vain", text !== "" && !found.length);
  found[0]?.scrollIntoView({ block: "nearest", inline: "center" });
}

function open(input) {
  const found = boxes(input).filter((each) => each.classList.contains("found"));
  const exact = found.find((each) => each.dataset.id.slice(2) === input.value.trim());
  (exact ?? found[0])?.focus();
}

const legend = () =>
  h(
    "span",
    { class: "hint keys" },
    ["binding", "alternate", "dead letters"].map((kind) =>
      h(
        "span",
        {},
        s(
          "svg",
          { width: 28, height: 8, class: "topology", "aria-hidden": "true" },
          s("path", { class: `edge ${kindClass(kind)}`, d: "M0 4H28" }),
        ),
        ` ${kind} `,
      ),
    ),
  );

const kindClass = (kind) => kind.replace(" ", "-");

function step(event, steps) {
  zoom = Math.min(Math.max((zoom ?? WHOLE) + steps, 0), ZOOMS.length - 1);
  scale(drawingBy(event.currentTarget));
}

function fit(event) {
  zoom = null;
  scale(drawingBy(event.currentTarget));
}

// The drawing in the page: later drawings of the view are only patterns for it, and thrown away.
const drawingBy = (button) => button.closest(".canvas").querySelector(".drawn svg");

function scale(svg) {
  const [, , width, height] = svg.getAttribute("viewBox").split(" ");
  const by = zoom === null ? Math.min(roomThere() / width, 1) : ZOOMS[zoom];
  svg.setAttribute("width", Math.round(width * by));
  svg.setAttribute("height", Math.round(height * by));
}

// A mouse drags the drawing; touch screens scroll by themselves.
function dragged(event) {
  if (event.pointerType !== "mouse" || event.button !== 0 || event.target.closest("a")) return;
  const canvas = event.currentTarget;
  const start = { x: event.clientX + canvas.scrollLeft, y: event.clientY + canvas.scrollTop };
  const moved = (next) => canvas.scrollTo(start.x - next.clientX, start.y - next.clientY);
  const ended = () => canvas.removeEventListener("pointermove", moved);
  canvas.setPointerCapture(event.pointerId);
  canvas.addEventListener("pointermove", moved);
  canvas.addEventListener("pointerup", ended, { once: true });
  canvas.addEventListener("pointercancel", ended, { once: true });
}

const arrows = () =>
  s(
    "defs",
    {},
    ["plain", "lit"].map((name) =>
      s(
        "marker",
        {
          id: `arrow-${name}`,
          viewBox: "0 0 8 8",
          refX: 7,
          refY: 4,
          markerWidth: 9,
          markerHeight: 9,
          markerUnits: "userSpaceOnUse",
          orient: "auto",
        },
        s("path", { class: `head ${name}`, d: "M0 0L8 4L0 8Z" }),
      ),
    ),
  );

const isLit = ({ from, to }, way) => way?.pairs.has(pair(from, to)) ?? false;

const classOf = (link, way) => `link ${isLit(link, way) ? "lit" : ""} ${link.rate > 0 ? "flows" : ""}`;

function line({ link, points }, way, wide) {
  return s(
    "g",
    { class: classOf(link, way) },
    s("title", {}, told(link)),
    s("path", {
      class: `edge ${kindClass(link.kind)}`,
      d: curve(points, wide).path,
      "marker-end": `url(#arrow-${isLit(link, way) ? "lit" : "plain"})`,
    }),
  );
}

function lettering({ link, points, apart }, way, wide, between) {
  const { x, y } = curve(points, wide);
  // The rate stands below the line where there is room, else behind the key.
  const isRoomy = apart > 2 * READABLE;
  const key = label(link);
  const flows = link.rate > 0;
  const text = flows && !isRoomy ? [key, rate(link.rate)].filter(Boolean).join(" · ") : key;
  const at = { x, "text-anchor": "end" };
  return s(
    "g",
    { class: classOf(link, way) },
    s("title", {}, told(link)),
    apart >= READABLE && s("text", { class: "key", ...at, y: y - 5 }, fitted(text, SMALL, between - 14)),
    flows && isRoomy && s("text", { class: "key rate", ...at, y: y + 15 }, rate(link.rate)),
  );
}

const told = ({ kind, keys, rate: speed }) =>
  [
    kind === "binding"
      ? `Keys: ${keys
          .slice(0, 50)
          .map((key) => key || "(no key)")
          .join(", ")}`
      : kind,
    speed !== undefined && rate(speed),
  ]
    .filter(Boolean)
    .join("; ");

/** Draws from the right side of a node to the left side of the next, or the other way round, through its bends. */
function curve(points, wide) {
  const backwards = points[0].x > points.at(-1).x;
  const ends = points.map(({ x, y }, index) => ({
    x: x + wide * (index === 0 ? Number(!backwards) : index === points.length - 1 ? Number(backwards) : 0.5),
    y,
  }));
  let path = `M${ends[0].x} ${ends[0].y}`;
  for (let index = 1; index < ends.length; index += 1) {
    const [from, to] = [ends[index - 1], ends[index]];
    const middle = (from.x + to.x) / 2;
    path += `C${middle} ${from.y} ${middle} ${to.y} ${to.x} ${to.y}`;
  }
  const last = ends.at(-1);
  return { path, x: last.x - (backwards ? -80 : 10), y: last.y };
}

/** Draws a node. It leads to its neighbours, and from among them to its page. */
function box(node, { x, y, high }, host, way, wide, focus) {
  const state = `node ${node.kind} ${node.missing ? "missing" : ""} ${way?.ids.has(node.id) ? "lit" : ""}`;
  const page = node.kind === "queue" ? queueLink(host, node.name) : exchangeLink(host, node.name);
  const isFocus = node.id === focus;
  const href = isFocus ? page : linkTo(["topology"], { vhost: host, focus: node.id });
  const facts = [
    node.missing ? "is not there" : (node.type ?? node.kind),
    node.kind === "queue" && Number.isFinite(node.messages) && count(node.messages),
    (node.flow ?? node.incoming) > 0 && rate(node.flow ?? node.incoming),
  ].filter(Boolean);
  return s(
    "a",
    { href, class: `${state} ${isFocus ? "focus" : ""}`, "data-id": node.id },
    s("title", {}, `${node.kind} ${node.name}`),
    s("rect", { x, y: y - high / 2, width: wide, height: high, rx: node.kind === "exchange" ? 22 : 6 }),
    s("text", { class: "name", x: x + wide / 2, y: y - 3, "text-anchor": "middle" }, fitted(node.name, NAME, wide - 14)),
    s("text", { class: "below", x: x + wide / 2, y: y + 14, "text-anchor": "middle" }, fitted(facts.join(" · "), SMALL, wide - 14)),
  );
}
