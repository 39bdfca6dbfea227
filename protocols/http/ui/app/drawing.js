// Draws a topology: the layout as SVG, with the route of a message emphasised, and zooming.

import { h, s } from "./dom.js";
import { count, cut } from "./format.js";
import { label, pair } from "./graph.js";
import { layout } from "./layers.js";
import { exchangeLink, queueLink } from "./routes.js";

const WIDE = 160;
const HIGH = 36;
const ZOOMS = [0.25, 0.35, 0.5, 0.7, 1, 1.4, 2];
const WHOLE = 4; // the index of 1

let zoom = null; // kept while the page is open; null: fit the width, if that is readable

/** `way` has the ids and pairs on the route of a message, or is null. */
export function drawing({ nodes, links }, host, way) {
  const placed = layout(nodes, links);
  const svg = s(
    "svg",
    {
      viewBox: `0 0 ${placed.width} ${placed.height}`,
      role: "group",
      "aria-label": "Drawing of exchanges and queues",
      class: way ? "topology explained" : "topology",
    },
    arrows(),
    placed.links.map(({ link, points }) => edge(link, points, way)),
    nodes.map((node) => box(node, placed.nodes.get(node.id), host, way)),
  );
  scale(svg);
  return h(
    "div",
    { class: "canvas" },
    h(
      "div",
      { class: "row zoom" },
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
        role: "region",
        "aria-label": "Topology",
        onpointerdown: dragged,
      },
      svg,
    ),
  );
}

const button = (text, title, onclick) =>
  h("button", { type: "button", title, "aria-label": `${text} ${title}`, onclick }, text);

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
  svg.classList.toggle("fit", zoom === null);
  svg.setAttribute("width", Math.round(width * ZOOMS[zoom ?? WHOLE]));
  svg.setAttribute("height", Math.round(height * ZOOMS[zoom ?? WHOLE]));
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

function edge(link, points, way) {
  const lit = way?.pairs.has(pair(link.from, link.to)) ?? false;
  const drawn = curve(points);
  const text = label(link);
  return s(
    "g",
    { class: `link ${lit ? "lit" : ""}` },
    s(
      "title",
      {},
      link.kind === "binding"
        ? `Keys: ${link.keys
            .slice(0, 50)
            .map((key) => key || "(no key)")
            .join(", ")}`
        : link.kind,
    ),
    s("path", {
      class: `edge ${kindClass(link.kind)}`,
      d: drawn.path,
      "marker-end": `url(#arrow-${lit ? "lit" : "plain"})`,
    }),
    s("text", { class: "key", x: drawn.x, y: drawn.y, "text-anchor": "end" }, cut(text, 17)),
  );
}

/** Draws from the right side of a node to the left side of the next, or the other way round, through its bends. */
function curve(points) {
  const backwards = points[0].x > points.at(-1).x;
  const ends = points.map(({ x, y }, index) => ({
    x: x + WIDE * (index === 0 ? Number(!backwards) : index === points.length - 1 ? Number(backwards) : 0.5),
    y,
  }));
  let path = `M${ends[0].x} ${ends[0].y}`;
  for (let index = 1; index < ends.length; index += 1) {
    const [from, to] = [ends[index - 1], ends[index]];
    const middle = (from.x + to.x) / 2;
    path += `C${middle} ${from.y} ${middle} ${to.y} ${to.x} ${to.y}`;
  }
  const last = ends.at(-1);
  return { path, x: last.x - (backwards ? -60 : 10), y: last.y - 6 };
}

function box(node, { x, y }, host, way) {
  const state = `node ${node.kind} ${node.missing ? "missing" : ""} ${way?.ids.has(node.id) ? "lit" : ""}`;
  const href = node.kind === "queue" ? queueLink(host, node.name) : exchangeLink(host, node.name);
  const below = node.missing
    ? "is not there"
    : `${node.type ?? node.kind}${node.kind === "queue" && Number.isFinite(node.messages) ? ` · ${count(node.messages)}` : ""}`;
  return s(
    "a",
    { href, class: state, "data-id": node.id, },
    s("title", {}, `${node.kind} ${node.name}`),
    s("rect", { x, y: y - HIGH / 2, width: WIDE, height: HIGH, rx: node.kind === "exchange" ? HIGH / 2 : 6 }),
    s("text", { class: "name", x: x + WIDE / 2, y: y - 2, "text-anchor": "middle" }, cut(node.name, 18)),
    s("text", { class: "below", x: x + WIDE / 2, y: y + 12, "text-anchor": "middle" }, below),
  );
}
