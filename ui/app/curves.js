// From the API's samples to the lines of a chart. Pure functions.
//
//     {"messages_ready_details": {"samples": [{"sample": 12, "timestamp": ms}, ...]}}     the latest sample first
//       -> points [[ms, 12], ...]      the earliest first      -> an SVG path in a box of so many units

/** Returns the value at each time. */
export function gauges(samples) {
  const points = (samples ?? []).map(({ sample, timestamp }) => [timestamp, sample]);
  return points.filter((point) => point.every(Number.isFinite)).sort(([a], [b]) => a - b);
}

/** Returns how fast a counter rose up to each time, per second; 0 where it began anew (a restart). */
export function speeds(samples) {
  const points = gauges(samples);
  return points.slice(1).map(([at, total], index) => {
    const [before, less] = points[index];
    return [at, at > before ? (Math.max(total - less, 0) * 1000) / (at - before) : 0];
  });
}

const NEXT_MS = 5000; // samples are taken so often, however far apart the points are

/** Returns the points with the current value as the latest: samples are some seconds old. */
export function continued(points, latest) {
  if (points.length < 2 || !Number.isFinite(latest)) return points;
  const [[before], [last]] = points.slice(-2);
  return [...points, [last + Math.min(last - before, NEXT_MS), latest]];
}

/** Returns the least round number that is not below: 1, 2 or 5 and zeros. At least 1. */
export function ceiling(most) {
  if (!(most > 1)) return 1;
  const power = 10 ** Math.floor(Math.log10(most));
  return [1, 2, 5, 10].map((step) => step * power).find((round) => round >= most);
}

/** Returns the least round number of bytes that is not below: 1, 2, 5 and so on of KiB, MiB, GiB. At least 1 KiB. */
export function byteCeiling(most) {
  let unit = 1024;
  while (most > 500 * unit) unit *= 1024;
  return [1, 2, 5, 10, 20, 50, 100, 200, 500].map((step) => step * unit).find((round) => round >= most);
}

/** Returns the box of all lines: from the first time to the last, from 0 to a round number. */
export function bounds(lines, round = ceiling) {
  const points = lines.flat();
  const times = points.map(([at]) => at);
  const most = points.reduce((highest, [, value]) => Math.max(highest, value), 0);
  const first = times.reduce((least, at) => Math.min(least, at), Infinity);
  const last = times.reduce((latest, at) => Math.max(latest, at), -Infinity);
  return points.length ? { first, last, most: round(most) } : { first: 0, last: 0, most: 1 };
}

/** Returns where a point is drawn: x to the right, y downwards, to a tenth. */
export function spot([at, value], { first, last, most }, width, height) {
  const x = last > first ? ((at - first) / (last - first)) * width : width;
  return [tenth(x), tenth(height - (Math.min(value, most) / most) * height)];
}

const tenth = (number) => Math.round(number * 10) / 10;

/** Returns a line through the points, as the `d` of a path. Empty without points. */
export function line(points, box, width, height) {
  return points
    .map((point, index) => `${index ? "L" : "M"}${spot(point, box, width, height).join(" ")}`)
    .join("");
}

/** Returns the area below the line. */
export function area(points, box, width, height) {
  if (points.length < 2) return "";
  const [left] = spot(points[0], box, width, height);
  const [right] = spot(points.at(-1), box, width, height);
  return `${line(points, box, width, height)}L${right} ${height}L${left} ${height}Z`;
}

/** Returns the point nearest to a time. Points are in order of time. */
export function nearest(points, at) {
  let low = 0;
  let high = points.length - 1;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (points[middle][0] < at) low = middle + 1;
    else high = middle;
  }
  const before = points[low - 1];
  return before && at - before[0] < points[low][0] - at ? before : points[low];
}
