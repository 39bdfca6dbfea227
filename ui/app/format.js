// Numbers, times and values as people read them. Pure functions.

const UNITS = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];

export function count(number) {
  if (typeof number !== "number" || !Number.isFinite(number)) return "–";
  if (Math.abs(number) < 1e6) return Math.round(number).toLocaleString("en");
  return number.toLocaleString("en", { notation: "compact", maximumFractionDigits: 2 });
}

/** Returns how many there are of a thing, in one word for it: "1 queue", "3 queues". */
export const plural = (number, one) => `${count(number)} ${one}${number === 1 ? "" : "s"}`;

export function rate(number) {
  if (typeof number !== "number" || !Number.isFinite(number)) return "–";
  if (number === 0) return "0/s";
  if (number < 0.1) return "< 0.1/s";
  return `${number < 10 ? number.toFixed(1) : count(number)}/s`;
}

export function octets(number) {
  if (typeof number !== "number" || !Number.isFinite(number)) return "–";
  let power = 0;
  while (number >= 1024 && power < UNITS.length - 1) {
    number /= 1024;
    power += 1;
  }
  return `${power === 0 || number >= 100 ? Math.round(number) : number.toFixed(1)} ${UNITS[power]}`;
}

export const octetRate = (number) => `${octets(number)}/s`;

/** Returns milliseconds as their two largest units. */
export function duration(ms) {
  if (typeof ms !== "number" || !Number.isFinite(ms)) return "–";
  const seconds = Math.floor(ms / 1000);
  const parts = [
    [Math.floor(seconds / 86400), "d"],
    [Math.floor(seconds / 3600) % 24, "h"],
    [Math.floor(seconds / 60) % 60, "min"],
    [seconds % 60, "s"],
  ];
  const first = parts.findIndex(([amount]) => amount > 0);
  if (first === -1) return "0 s";
  const told = parts.slice(first, first + 2).filter(([amount]) => amount > 0);
  return told.map(([amount, unit]) => `${amount} ${unit}`).join(" ");
}

/** Returns a time in milliseconds since 1970 in the reader's zone. */
export const moment = (ms) =>
  typeof ms === "number"
    ? new Date(ms).toLocaleString("en-GB", { dateStyle: "medium", timeStyle: "medium" })
    : "–";

export const clock = (ms) => new Date(ms).toLocaleTimeString("en-GB");

export const dayTime = (ms) =>
  new Date(ms).toLocaleString("en-GB", { weekday: "short", hour: "2-digit", minute: "2-digit" });

/** Returns a value of a table, of an argument or a header, on one line; bytes that are no text as `\\x00`. */
export const value = (given) => visible(typeof given === "string" ? given : (JSON.stringify(given) ?? ""));

/** Returns text in which signs without a picture are told by their numbers. */
export const visible = (text) =>
  text.replace(/[\0-\x08\x0b-\x1f\x7f-\x9f]/g, (each) => `\\x${each.charCodeAt(0).toString(16).padStart(2, "0")}`);

/** Reads lines of `name = value` as an object: JSON where it is that, else text. Throws Error naming the line. */
export function table(text) {
  const found = {};
  for (const line of text
    .split("\n")
    .map((each) => each.trim())
    .filter(Boolean)) {
    const at = line.indexOf("=");
    if (at < 1) throw new Error(`“${line}” is not name = value`);
    found[line.slice(0, at).trim()] = meant(line.slice(at + 1).trim());
  }
  return found;
}

function meant(text) {
  try {
    return JSON.parse(text);
  } catch {
    return text;
  }
}

/** Returns text cut to a length, with an ellipsis where it was cut. Whole characters only. */
export function cut(text, length) {
  const characters = Array.from(text);
  return characters.length <= length ? text : `${characters.slice(0, length - 1).join("")}…`;
}
