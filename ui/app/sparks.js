// Curves of the size of a word, for lists: the last ten minutes of a row, without axes and legends.

import { area, bounds, continued, gauges, line, speeds } from "./curves.js";
import { s } from "./dom.js";

const WIDTH = 72;
const HEIGHT = 20;

/** Parameters of the API: half a minute between points is enough for so few pixels, and keeps a page's answer small. */
export const LENGTHS = { lengths_age: 600, lengths_incr: 30 };
export const OCTETS = { data_rates_age: 600, data_rates_incr: 30 };

/** Draws how much there was, and is now: `details` are of a length. */
export const level = (label, details, now, told) =>
  spark([{ label, points: continued(gauges(details?.samples), now) }], told);

/** Draws how fast counters rose: [[label, details], ...]. */
export const pace = (counted, told) =>
  spark(
    counted.map(([label, details]) => ({
      label,
      points: continued(speeds(details?.samples), details?.rate),
    })),
    told,
  );

function spark(lines, told) {
  const box = bounds(lines.map(({ points }) => points));
  if (box.last <= box.first) return null;
  return s(
    "svg",
    {
      class: "spark",
      viewBox: `0 -1 ${WIDTH} ${HEIGHT + 2}`,
      width: WIDTH,
      height: HEIGHT + 2,
      role: "img",
      "aria-label": `Last ten minutes: ${lines.map((each) => range(each, told)).join("; ")}`,
    },
    lines.map(({ points }, index) =>
      s("path", { class: `area tone-${index}`, d: area(points, box, WIDTH, HEIGHT) }),
    ),
    lines.map(({ points }, index) =>
      s("path", { class: `line tone-${index}`, d: line(points, box, WIDTH, HEIGHT) }),
    ),
  );
}

function range({ label, points }, told) {
  const values = points.map(([, value]) => value);
  return `${label} ${told(Math.min(...values))} to ${told(Math.max(...values))}`;
}
