// Turns the part behind the `#` into names, percent-decoded, and a query, and back. Pure functions.

/** Reads `#/queues/%2F/orders?page=2` as {names: ["queues", "/", "orders"], query: {page: "2"}}. */
export function place(hash) {
  const [path, query = ""] = hash.replace(/^#?\/?/, "").split(/\?(.*)/s);
  return {
    names: path.split("/").filter(Boolean).map(decoded),
    query: Object.fromEntries(new URLSearchParams(query)),
  };
}

function decoded(text) {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}

/** Returns the link to a place. */
export function link(names, query = {}) {
  const given = Object.entries(query).filter(
    ([, value]) => value !== undefined && value !== null && value !== "",
  );
  const behind = given.length ? `?${new URLSearchParams(given)}` : "";
  return `#/${names.map(encodeURIComponent).join("/")}${behind}`;
}

// The default exchange has no name; in a path it has this one.
export const DEFAULT_EXCHANGE = "amq.default";
export const exchangeLink = (host, name) => link(["exchanges", host, name || DEFAULT_EXCHANGE]);
export const queueLink = (host, name) => link(["queues", host, name]);
