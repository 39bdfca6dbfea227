// Turns the API's answers into a graph of a virtual host, and an explanation into the part of it that it covers.
// Pure functions.
//
//     nodes [{id, kind: "exchange" | "queue", name, ...}]      id: "e:name" or "q:name"
//     links [{from, to, kind: "binding" | "alternate" | "dead letters", keys: [...], rate}]      one for each pair and kind

export const NODES_MAX = 160; // more can be neither read nor drawn quickly
const KEYS_SHOWN = 2;

export const exchangeId = (name) => `e:${name}`;
export const queueId = (name) => `q:${name}`;

const targetId = ({ destination_type: type, destination }) =>
  type === "queue" ? queueId(destination) : exchangeId(destination);

/**
 * Returns the graph without the default exchange's bindings to every queue. With `start`, the name of an exchange, only
 * what it leads to; with `focus`, the id of a node, only that and its neighbours.
 */
export function graph(exchanges, queues, bindings, start = "", focus = "") {
  const nodes = new Map();
  for (const each of exchanges) if (each.name !== "") nodes.set(exchangeId(each.name), exchangeNode(each));
  for (const each of queues) nodes.set(queueId(each.name), queueNode(each));
  const links = [...bindingLinks(bindings, nodes), ...settingLinks(nodes)];
  addRates(nodes, links);
  if (focus !== "") return around(nodes, links, focus);
  return bounded(nodes, links, start === "" ? null : exchangeId(start));
}

/** Returns a node, and those that one link leads to or from. */
function around(nodes, links, focus) {
  const touching = links.filter(({ from, to }) => from === focus || to === focus);
  const ids = new Set([focus, ...touching.flatMap(({ from, to }) => [from, to])].filter((id) => nodes.has(id)));
  return bounded(new Map([...ids].map((id) => [id, nodes.get(id)])), touching, null);
}

const ROUNDS = 8; // one finds what the one before made known; a chain of more exchanges stays in part unknown

/**
 * Adds to bindings how many messages a second go through them, where that follows from the counts of exchanges and queues:
 * what comes to one with a single unknown link comes through that, and a fanout exchange sends the same through each.
 */
function addRates(nodes, links) {
  const bindings = links.filter(({ kind }) => kind === "binding");
  const by = (side) => {
    const found = new Map([...nodes.keys()].map((id) => [id, []]));
    for (const link of bindings) found.get(link[side])?.push(link);
    return found;
  };
  const [leaving, arriving] = [by("from"), by("to")];
  for (const link of bindings) if (nodes.get(link.from)?.type === "fanout") link.keyless = true;
  for (let round = 0; round < ROUNDS; round += 1) {
    for (const node of nodes.values()) spread(node, leaving.get(node.id), arriving.get(node.id));
  }
}

// An exchange counts what clients publish to it, a queue all that comes.
function spread(node, leaving, arriving) {
  const unknown = arriving.filter(({ rate }) => rate === undefined);
  const known = arriving.reduce((sum, { rate = 0 }) => sum + rate, 0);
  const isExchange = node.kind === "exchange";
  const own = node.incoming;
  if (own === undefined) return;
  if (isExchange && !unknown.length) node.flow = own + known;
  if (node.type === "fanout") {
    node.flow ??= leaving.find(({ rate }) => rate !== undefined)?.rate;
    if (node.flow !== undefined) for (const link of leaving) link.rate ??= node.flow;
  }
  const total = isExchange ? node.flow && node.flow - own : own;
  if (unknown.length === 1 && total !== undefined) unknown[0].rate = Math.max(total - known, 0);
}

const exchangeNode = ({
  name,
  type,
  arguments: given = {},
  effective_policy_definition: policy,
  message_stats: stats,
}) => ({
  incoming: stats?.publish_in_details?.rate,
  outgoing: stats?.publish_out_details?.rate,
  id: exchangeId(name),
  kind: "exchange",
  name,
  type,
  alternate: given["alternate-exchange"] ?? policy?.["alternate-exchange"],
});

const queueNode = ({
  name,
  type,
  messages,
  arguments: given = {},
  effective_policy_definition: policy,
  message_stats: stats,
}) => ({
  incoming: stats?.publish_details?.rate,
  outgoing: stats?.deliver_get_details?.rate,
  id: queueId(name),
  kind: "queue",
  name,
  type,
  messages,
  deadLetters: given["x-dead-letter-exchange"] ?? policy?.["dead-letter-exchange"],
  deadLetterKey: given["x-dead-letter-routing-key"] ?? policy?.["dead-letter-routing-key"] ?? name,
});

function bindingLinks(bindings, nodes) {
  const found = new Map();
  for (const each of bindings) {
    if (each.source === "") continue;
    const link = { from: exchangeId(each.source), to: targetId(each), kind: "binding", keys: [] };
    const id = JSON.stringify([link.from, link.to]);
    if (!found.has(id)) found.set(id, link);
    found.get(id).keys.push(each.routing_key);
    if (!nodes.has(link.to))
      nodes.set(link.to, { id: link.to, kind: each.destination_type, name: each.destination });
  }
  return found.values();
}

/** Links to alternate and dead-letter exchanges; one that does not exist is drawn as missing. */
function settingLinks(nodes) {
  const links = [];
  const towards = (from, name, kind) => {
    const to = exchangeId(name);
    if (!nodes.has(to)) nodes.set(to, { id: to, kind: "exchange", name, missing: true });
    links.push({ from, to, kind, keys: [] });
  };
  for (const node of [...nodes.values()]) {
    if (typeof node.alternate === "string") towards(node.id, node.alternate, "alternate");
    if (node.deadLetters === "") directly(node, nodes, links);
    else if (typeof node.deadLetters === "string") towards(node.id, node.deadLetters, "dead letters");
  }
  return links;
}

// The default exchange sends a dead letter to the queue of that name.
function directly(node, nodes, links) {
  const to = queueId(node.deadLetterKey);
  if (to !== node.id && nodes.has(to)) links.push({ from: node.id, to, kind: "dead letters", keys: [] });
}

/** Breadth first from the start, or from all exchanges that have links; nodes beyond the maximum are only counted. */
function bounded(nodes, links, start) {
  const leads = new Map();
  for (const { from, to } of links) {
    if (!leads.has(from)) leads.set(from, []);
    leads.get(from).push(to);
  }
  const begin = start === null ? wholeFrom(nodes, links) : [start].filter((id) => nodes.has(id));
  const reached = new Set(begin);
  for (const id of reached) for (const to of leads.get(id) ?? []) reached.add(to);
  const kept = new Set([...reached].slice(0, NODES_MAX));
  return {
    nodes: [...kept].map((id) => nodes.get(id)),
    links: links.filter(({ from, to }) => kept.has(from) && kept.has(to)),
    left: reached.size - kept.size,
  };
}

// Linked nodes first; standard exchanges without links are left out.
function wholeFrom(nodes, links) {
  const linked = new Set(links.flatMap(({ from, to }) => [from, to]));
  const rank = (id) => (linked.has(id) ? 0 : 1);
  return [...nodes.keys()]
    .filter((id) => linked.has(id) || !id.startsWith("e:amq."))
    .sort((a, b) => rank(a) - rank(b));
}

/** Returns the keys of a link in few words. */
export function label({ kind, keys, keyless }) {
  if (kind !== "binding" || keyless) return ""; // see the legend; a fanout exchange does not look at keys
  const shown = keys.slice(0, KEYS_SHOWN).map((key) => key || "(no key)");
  return keys.length > KEYS_SHOWN ? `${shown.join(", ")} +${keys.length - KEYS_SHOWN}` : shown.join(", ");
}

/** Returns the ids, and the pairs of ids ("from to" as JSON), that an explanation covers. */
export function way({ exchange, steps, queues }) {
  const ids = new Set([exchangeId(exchange), ...queues.map(queueId)]);
  const pairs = new Set();
  for (const { exchange: from, matched, alternate, outcome } of steps) {
    ids.add(exchangeId(from));
    for (const { kind, name } of matched)
      pairs.add(pair(exchangeId(from), kind === "queue" ? queueId(name) : exchangeId(name)));
    if (alternate && outcome === "followed") pairs.add(pair(exchangeId(from), exchangeId(alternate)));
  }
  return { ids, pairs };
}

export const pair = (from, to) => JSON.stringify([from, to]);

const named = (exchange) => (exchange === "" ? "the default exchange" : `exchange “${exchange}”`);

/** Returns the explanation as sentences. */
export function words({ exchange, keys, queues, steps, dropped, handled }) {
  const told = steps.map(sentence);
  const key = keys[0] ? `with key “${keys[0]}”` : "without a key";
  const end = ending(queues, dropped, handled);
  return [`A message to ${named(exchange)} ${key}:`, ...told, end];
}

function ending(queues, dropped, handled) {
  if (queues.length)
    return `It reaches ${queues.length === 1 ? "queue" : `${queues.length} queues:`} ${queues.map((name) => `“${name}”`).join(", ")}.`;
  return handled ? "An exchange on the way takes the message itself." : `It reaches nobody: ${dropped}.`;
}

function sentence({ exchange, type, matched, unmet = [], alternate, outcome, reason }) {
  const start = `${named(exchange)} (${type})`;
  const found = matched.map(
    ({ kind, name, key, followed }) =>
      `${kind} “${name}”${key ? ` by binding “${key}”` : ""}${followed ? "" : " (asked once already)"}`,
  );
  const kept = unmet.length
    ? ` The selector does not match for ${unmet.map(({ kind, name }) => `${kind} “${name}”`).join(", ")}.`
    : "";
  const then = alternate
    ? ` It turns to its alternate, ${named(alternate)}${outcome === "followed" ? "" : `: ${outcome}`}.`
    : "";
  const text = found.length
    ? `${start} leads to ${found.join(" and ")}.`
    : `${start}: ${reason || "nothing matched"}.`;
  return text[0].toUpperCase() + text.slice(1) + kept + then;
}
