// Charts as SVG: some lines over the same ten minutes, with a legend of the latest values, or of those pointed at.

import { area, bounds, continued, gauges, line, nearest, speeds, spot } from "./curves.js";
import { h, s } from "./dom.js";
import { clock, count, rate } from "./format.js";

const WIDTH = 600;
const HEIGHT = 150;

/** Parameters of the API for ten minutes of samples. */
export const SAMPLED = {
  lengths_age: 600,
  lengths_incr: 5,
  msg_rates_age: 600,
  msg_rates_incr: 5,
};

/** A chart of lengths. `found` has NAME and `NAME_details` for each [NAME, label]. */
export const lengths = (title, found, names) =>
  chart(
    title,
    names.map(([name, label]) => ({
      label,
      points: continued(gauges(found?.[`${name}_details`]?.samples), found?.[name]),
    })),
    count,
  );

/** A chart of counters: how fast they rose. */
export const flows = (title, found, names, told = rate) =>
  chart(
    title,
    names.map(([name, label]) => {
      const details = found?.[`${name}_details`];
      return { label, points: continued(speeds(details?.samples), details?.rate) };
    }),
    told,
  );

const latest = ({ points }, told) => (points.length ? told(points.at(-1)[1]) : "–");

function chart(title, lines, told) {
  const box = bounds(lines.map(({ points }) => points));
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
      h("div", { class: "times" }, h("span", {}, clock(box.first)), h("span", {}, clock(box.last))),
    ),
    h(
      "ul",
      { class: "legend" },
      lines.map((each, index) => entry(each, index, told)),
    ),
  );
}

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
      onpointerleave: (event) => unpoint(event, lines, told),
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
    clock(shown[0]),
  );
}

function unpoint(event, lines, told) {
  event.currentTarget.classList.remove("pointed");
  tell(event.currentTarget, lines, (each) => latest(each, told), null);
}

function tell(svg, lines, chosen, time) {
  const figure = svg.closest("figure");
  figure.querySelectorAll(".legend b").forEach((shown, index) => {
    shown.textContent = chosen(lines[index]);
  });
  const last = figure.querySelector(".times span:last-child");
  const ends = lines.map(({ points }) => points.at(-1)?.[0] ?? 0);
  last.textContent = time ?? clock(Math.max(...ends));
}
