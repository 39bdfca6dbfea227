// Charts as SVG: some lines over the same time, with a legend of the latest values, or of those pointed at.

import { area, bounds, byteCeiling, ceiling, continued, gauges, line, nearest, speeds, spot } from "./curves.js";
import { h, s } from "./dom.js";
import { clock, count, dayTime, octetRate, octets, rate } from "./format.js";
import { link } from "./routes.js";

const WIDTH = 600;
const HEIGHT = 150;

// How far back a chart goes, and the seconds between its points: a node keeps fewer of them the older they are.
const RANGES = {
  "10m": { title: "10 min", age: 600, apart: 5 },
  "1h": { title: "1 h", age: 3600, apart: 60 },
  "8h": { title: "8 h", age: 28_800, apart: 600 },
  day: { title: "Day", age: 86_400, apart: 1800 },
};
const SHORTEST = "10m";

const IN_BYTES = new Set([octets, octetRate]);

const rangeOf = ({ query: chosen }) => RANGES[chosen.range] ?? RANGES[SHORTEST];

/** Parameters of the API for the samples of the range in a link; `kinds` begin the names of the parameters. */
export const sampledFor = (at, ...kinds) =>
  Object.fromEntries(
    kinds.flatMap((kind) => [
      [`${kind}_age`, rangeOf(at).age],
      [`${kind}_incr`, rangeOf(at).apart],
    ]),
  );

/** Parameters of the API for ten minutes of samples, of things that have no more. */
export const SAMPLED = sampledFor({ query: {} }, "lengths", "msg_rates");

/** Links to the same view with other ranges. */
export const ranges = (at) =>
  h(
    "nav",
    { class: "row ranges", "aria-label": "Range of the charts" },
    Object.entries(RANGES).map(([name, range]) =>
      h(
        "a",
        {
          class: "button",
          href: link(at.names, { ...at.query, range: name === SHORTEST ? "" : name }),
          "aria-current": range === rangeOf(at) ? "true" : null,
        },
        range.title,
      ),
    ),
  );

/** A chart of lengths. `found` has NAME and `NAME_details` for each [NAME, label]. */
export const lengths = (title, found, names, told = count) =>
  chart(
    title,
    names.map(([name, label]) => ({
      label,
      points: continued(gauges(found?.[`${name}_details`]?.samples), found?.[name]),
    })),
    told,
  );

/** A chart of counters: how fast they rose. */
export const flows = (title, found, names, told = rate) =>
  chart(
    title,
    // What a thing does not count has no line.
    names.filter(([name]) => !found || name in found || `${name}_details` in found).map(([name, label]) => {
      const details = found?.[`${name}_details`];
      return { label, points: continued(speeds(details?.samples), details?.rate) };
    }),
    told,
  );

const latest = ({ points }, told) => (points.length ? told(points.at(-1)[1]) : "–");

function chart(title, lines, told) {
  const box = bounds(
    lines.map(({ points }) => points),
    IN_BYTES.has(told) ? byteCeiling : ceiling,
  );
  const key = `chart ${title}`;
  if (box.last <= box.first) {
    return h(
      "figure",
      { class: "chart empty", "data-key": key },
      h("figcaption", {}, title),
      h("p", {}, "No samples yet"),
    );
  }
  return h(
    "figure",
    { class: "chart", "data-key": key },
    h("figcaption", {}, title),
    h(
      "div",
      { class: "plot" },
      axis(box, told),
      drawing(title, lines, box, told),
      h("div", { class: "times" }, h("span", {}, when(box.first, box)), h("span", {}, when(box.last, box))),
    ),
    h(
      "ul",
      { class: "legend" },
      lines.map((each, index) => entry(each, index, told)),
    ),
  );
}

const LONG_MS = 12 * 3_600_000; // from here on a time of day needs its day

const when = (ms, { first, last }) => (last - first > LONG_MS ? dayTime(ms) : clock(ms));

const axis = (box, told) =>
  h(
    "div",
    { class: "axis", "aria-hidden": "true" },
    h("span", {}, told(box.most)),
    h("span", {}, box.most > 1 ? told(box.most / 2) : ""),
    h("span", {}, "0"),
  );

const entry = (each, index, told) =>
  h(
    "li",
    { class: `tone-${index}` },
    h("span", { class: "dot" }),
    `${each.label} `,
    h("b", {}, latest(each, told)),
  );

function drawing(title, lines, box, told) {
  const summary = lines.map((each) => `${each.label} ${latest(each, told)}`);
  return s(
    "svg",
    {
      viewBox: `0 0 ${WIDTH} ${HEIGHT}`,
      preserveAspectRatio: "none",
      role: "img",
      "aria-label": `${title}, now: ${summary.join(", ")}`,
      onpointermove: (event) => point(event, lines, box, told),
      onpointerleave: (event) => unpoint(event, lines, box, told),
    },
    [0, 0.25, 0.5, 0.75, 1].map((part) =>
      s("line", { class: "grid", x1: 0, x2: WIDTH, y1: part * HEIGHT, y2: part * HEIGHT }),
    ),
    lines.map(({ points }, index) =>
      s("path", { class: `area tone-${index}`, d: area(points, box, WIDTH, HEIGHT) }),
    ),
    lines
      .map(({ points }, index) =>
        s("path", { class: `line tone-${index}`, d: line(points, box, WIDTH, HEIGHT) }),
      )
      .reverse(),
    s("line", {
      class: "pointer",
      "data-keep": true,
      "data-key": "pointer",
      x1: 0,
      x2: 0,
      y1: 0,
      y2: HEIGHT,
    }),
  );
}

function point(event, lines, box, told) {
  const svg = event.currentTarget;
  const place = svg.getBoundingClientRect();
  const at = box.first + ((event.clientX - place.left) / place.width) * (box.last - box.first);
  const longest = lines.reduce((best, { points }) => (points.length > best.length ? points : best), []);
  const shown = nearest(longest, at);
  const [x] = spot(shown, box, WIDTH, HEIGHT);
  const pointer = svg.querySelector(".pointer");
  pointer.setAttribute("x1", x);
  pointer.setAttribute("x2", x);
  svg.classList.add("pointed");
  tell(
    svg,
    lines,
    ({ points }) => (points.length ? told(nearest(points, shown[0])[1]) : "–"),
    when(shown[0], box),
  );
}

function unpoint(event, lines, box, told) {
  event.currentTarget.classList.remove("pointed");
  tell(event.currentTarget, lines, (each) => latest(each, told), when(box.last, box));
}

function tell(svg, lines, chosen, time) {
  const figure = svg.closest("figure");
  figure.querySelectorAll(".legend b").forEach((shown, index) => {
    shown.textContent = chosen(lines[index]);
  });
  figure.querySelector(".times span:last-child").textContent = time;
}
