// Turns the body of a message into text for people: text, JSON in lines, or bytes in hexadecimal. Pure functions.
//
//     {payload, payload_encoding, payload_bytes, ...} -> {kind: "text" | "JSON" | "octets", text, left}
//
// `left` is what is not shown: characters of text, or bytes.

const CHARACTERS_MAX = 20_000;
const OCTETS_MAX = 2_048;
const IN_LINE = 16;
const INDENT = "  ";
const DEPTH_MAX = 40; // deeper values stand in one column, or the indents alone would fill the memory

export function body({ payload, payload_encoding: encoding, payload_bytes: size }) {
  const given = String(payload ?? "");
  if (encoding === "base64") return octets(given, size);
  return isJson(given) ? bounded("JSON", laidOut(given)) : bounded("text", given);
}

function bounded(kind, text) {
  const shown = text.slice(0, CHARACTERS_MAX);
  return { kind, text: shown, left: text.length - shown.length };
}

// A single number is JSON, too, but gains nothing from that.
function isJson(text) {
  if (!/^\s*[[{]/.test(text) || text.length > 4 * CHARACTERS_MAX) return false;
  try {
    JSON.parse(text);
    return true;
  } catch {
    return false;
  }
}

/** Returns JSON with line ends and indents. Its values stay as they are written: long numbers keep their digits. */
export function laidOut(text) {
  let made = "";
  let depth = 0;
  const next = () => `\n${INDENT.repeat(Math.min(depth, DEPTH_MAX))}`;
  const tokens = text.match(/"(?:[^"\\]|\\.)*"|[[\]{},:]|[^\s"[\]{},:]+/gs) ?? [];
  tokens.forEach((token, index) => {
    if (token === "{" || token === "[") {
      depth += 1;
      made += token + (isEnd(tokens[index + 1]) ? "" : next());
    } else if (isEnd(token)) {
      depth -= 1;
      made += (/[[{]/.test(tokens[index - 1]) && tokens[index - 1].length === 1 ? "" : next()) + token;
    } else if (token === ",") made += token + next();
    else if (token === ":") made += ": ";
    else made += token;
  });
  return made;
}

const isEnd = (token) => token === "}" || token === "]";

function octets(encoded, size) {
  const all = atob(encoded);
  const shown = all.slice(0, OCTETS_MAX);
  return { kind: "octets", text: dump(shown), left: (size ?? all.length) - shown.length };
}

/** Returns sixteen bytes a line: the offset, each in hexadecimal, and as ASCII where that is printable. */
export function dump(binary) {
  const lines = [];
  for (let at = 0; at < binary.length; at += IN_LINE) lines.push(row(binary.slice(at, at + IN_LINE), at));
  return lines.join("\n");
}

function row(some, at) {
  const hex = Array.from(some, (each) => each.charCodeAt(0).toString(16).padStart(2, "0"));
  const seen = some.replace(/[^\x20-\x7e]/g, ".");
  return `${at.toString(16).padStart(4, "0")}  ${hex.join(" ").padEnd(3 * IN_LINE - 1)}  ${seen}`;
}
