// Exchanges and queues as a drawing of each virtual host, and the route of a message through it.

import { Failure, get, path, query } from "../api.js";
import { h } from "../dom.js";
import { drawing } from "../drawing.js";
import { chosenHosts, everywhere, missed } from "../everywhere.js";
import { form } from "../forms.js";
import { count, table as read, value } from "../format.js";
import { NODES_MAX, exchangeId, graph, way, words } from "../graph.js";
import { namesOf } from "../names.js";
import { DEFAULT_EXCHANGE, exchangeLink, link, queueLink } from "../routes.js";
import { has, oneHost } from "../session.js";
import { page, section } from "../tables.js";

const HOSTS = 8; // that are drawn: each takes many requests
const EXCHANGES = 60; // whose bindings are loaded
const QUEUES = 500; // on a page of those whose settings are loaded
const QUEUE_PAGES = 4;
const BINDINGS = 200; // of each exchange: a fanout may have thousands, and the drawing has no room for them
const BOUND = "source,destination,destination_type,routing_key";
const SETTINGS =
  "name,type,arguments,effective_policy_definition,messages,message_stats.publish_details.rate,message_stats.deliver_get_details.rate";
const KEPT_MS = 30_000; // bindings take many requests, and change seldom
const OFFERED = 30; // routing keys

const kept = new Map(); // virtual host -> {at, of, pages}: bindings of exchanges, of which the names are known

const isOne = ({ query: chosen }) => Boolean(chosen.vhost) || chosenHosts().length === 1;
const hostsOf = ({ query: chosen }) => (chosen.vhost ? [chosen.vhost] : chosenHosts());
const asker = ({ query: chosen }) => chosen.vhost || oneHost();

export const topology = {
  title: (at) => (isOne(at) ? `Topology of ${hostsOf(at)[0]}` : "Topology"),

  async load(at, signal) {
    const { query: chosen } = at;
    const asked = chosen.vhost
      ? { found: [[chosen.vhost, await loaded(chosen.vhost, chosen, signal)]], refused: [], left: 0 }
      : await everywhere((vhost) => loaded(vhost, chosen, signal), HOSTS);
    return { asked, explained: chosen.explain ? await explanation(asker(at), chosen, signal) : null };
  },

  draw: ({ asked, explained }, at) => [
    has("monitoring") && section("Explain a route", asking(asked, at), explained && told(explained)),
    missed(asked),
    drawings(asked, explained, at),
  ],
};

/** Loads what one virtual host has, its bindings only now and then. */
async function loaded(vhost, chosen, signal) {
  const [exchanges, queues] = await Promise.all([
    get(path`exchanges/${vhost}` + query({ page: 1, page_size: EXCHANGES }), signal),
    queuesOf(vhost, signal),
  ]);
  const known = exchanges.items.filter(({ name }) => name !== "");
  const wanted = [chosen.exchange, chosen.focus?.startsWith("e:") && chosen.focus.slice(2)].find(Boolean);
  const isThere = !wanted || known.some(({ name }) => name === wanted);
  const all = isThere ? known : [...known, ...(await alone(vhost, wanted, signal))];
  const bindings = await bindingsOf(vhost, all, signal);
  return {
    exchanges: all,
    queues: queues.flatMap(({ items }) => items),
    bindings: bindings.flatMap(({ items }) => items),
    unasked: bindings.reduce((sum, { items, total_count: all_of }) => sum + all_of - items.length, 0),
    more: exchanges.page_count > 1 || queues[0].page_count > QUEUE_PAGES,
  };
}

/** Loads pages of queues: all of them have to be known for the arrows of dead letters. */
async function queuesOf(vhost, signal) {
  const page = (number) =>
    get(path`queues/${vhost}` + query({ page: number, page_size: QUEUES, columns: SETTINGS }), signal);
  const first = await page(1);
  const others = Math.min(first.page_count, QUEUE_PAGES) - 1;
  return [first, ...(await Promise.all(Array.from({ length: Math.max(others, 0) }, (_, index) => page(index + 2))))];
}

async function bindingsOf(vhost, exchanges, signal) {
  const of = JSON.stringify(exchanges.map(({ name }) => name));
  const before = kept.get(vhost);
  if (before?.of === of && Date.now() - before.at < KEPT_MS) return before.pages;
  const pages = await Promise.all(exchanges.map(({ name }) => bindingsFrom(vhost, name, signal)));
  kept.set(vhost, { at: Date.now(), of, pages });
  return pages;
}

document.addEventListener("leveret:changed", () => kept.clear());

const bindingsFrom = (vhost, name, signal) =>
  page(path`exchanges/${vhost}/${name}/bindings/source`, {}, { page_size: BINDINGS, columns: BOUND }, signal);

const alone = (vhost, name, signal) =>
  get(path`exchanges/${vhost}/${name}`, signal).then(
    (each) => [each],
    () => [],
  );

function drawings({ found }, explained, at) {
  const { query: chosen } = at;
  const graphs = found.map(([vhost, there]) => [
    vhost,
    there,
    graph(there.exchanges, there.queues, there.bindings, chosen.exchange ?? "", chosen.focus ?? ""),
  ]);
  const shown = graphs.filter(([, , { nodes }]) => nodes.length || graphs.length === 1);
  const empty = graphs.filter((each) => !shown.includes(each)).map(([vhost]) => vhost);
  return [
    shown.map(([vhost, there, drawn]) =>
      section(
        isOne(at) ? "Drawing" : `Virtual host ${vhost}`,
        remarks(drawn, there, vhost, at),
        picture(drawn, vhost, vhost === asker(at) ? explained : null, chosen.focus),
      ),
    ),
    empty.length > 0 && h("p", { class: "hint" }, `Nothing is bound in ${empty.join(", ")}.`),
  ];
}

async function explanation(vhost, { exchange = "", key, headers }, signal) {
  const asked = new URLSearchParams({ vhost, exchange, key: key ?? "" });
  for (const [name, given] of Object.entries(read(headers ?? "")))
    asked.append("header", `${name}=${typed(given)}`);
  try {
    return await get(`leveret/explain?${asked}`, signal);
  } catch (problem) {
    if (problem instanceof Failure && [400, 404].includes(problem.status))
      return { problem: problem.message };
    throw problem;
  }
}

// The node reads values as in its configuration file: text needs quotes where it would be something else.
const typed = (given) => (typeof given === "string" ? JSON.stringify(given) : value(given));

// The link holds what is explained; the form only changes the link.
function asking({ found }, at) {
  const { query: chosen } = at;
  const hosts = found.map(([vhost]) => vhost);
  const hostIn = (filled) => filled.elements.vhost?.value ?? asker(at);
  const made = form(
    "Explain",
    [
      ...(hosts.length > 1
        ? [{ name: "vhost", label: "Virtual host", type: "select", value: asker(at), options: hosts }]
        : []),
      {
        name: "exchange",
        label: "Exchange",
        value: chosen.exchange ?? "",
        placeholder: "the default exchange",
        complete: namesOf("exchanges", hostIn),
      },
      {
        name: "key",
        label: "Routing key",
        value: chosen.key ?? "",
        complete: async (text, filled) => keysOf(found, hostIn(filled), filled.elements.exchange.value, text),
      },
      {
        name: "headers",
        label: "Headers",
        type: "textarea",
        rows: 1,
        value: chosen.headers ?? "",
        placeholder: "name = value",
      },
    ],
    async ({ vhost = asker(at), exchange, key, headers }) => {
      read(headers);
      location.hash = link(["topology"], { vhost, exchange, key, headers, explain: "yes" });
    },
  );
  made.classList.add("across");
  made.setAttribute("data-key", JSON.stringify(["explain", asker(at), hosts, chosen.exchange ?? ""]));
  return made;
}

/** Returns the keys that things are bound with to an exchange; to the default exchange, the names of queues. */
function keysOf(found, vhost, exchange, text) {
  const there = found.find(([each]) => each === vhost)?.[1];
  const keys =
    exchange === ""
      ? (there?.queues ?? []).map(({ name }) => name)
      : (there?.bindings ?? []).filter(({ source }) => source === exchange).map((each) => each.routing_key);
  return [...new Set(keys)].filter((key) => key && key.includes(text)).slice(0, OFFERED);
}

function told(explained) {
  if (explained.problem) return h("p", { class: "banner failed" }, explained.problem);
  const sentences = words(explained);
  const end = sentences.pop();
  return h(
    "div",
    { class: "explanation", "aria-live": "polite" },
    h("p", {}, sentences[0]),
    h(
      "ol",
      {},
      sentences.slice(1).map((each) => h("li", {}, each)),
    ),
    h("p", { class: explained.routed ? "reached" : "dropped" }, end),
  );
}

function remarks({ left }, { more, unasked }, vhost, { query: chosen }) {
  const back = h("a", { href: link(["topology"], { vhost }) }, "Show all");
  const told = [
    chosen.focus && [neighbours(vhost, chosen.focus), " ", back, " "],
    chosen.exchange && [
      "What “",
      chosen.exchange === DEFAULT_EXCHANGE ? "the default exchange" : chosen.exchange,
      "” leads to. ",
      back,
      " ",
    ],
    !chosen.focus && "Choose an exchange or a queue to see its neighbours. ",
    left > 0 &&
      `${left} more are left out: the drawing holds ${NODES_MAX}. Begin from an exchange to see its part. `,
    unasked > 0 &&
      `${count(unasked)} bindings more are left out: of each exchange the first ${BINDINGS} are drawn. `,
    more &&
      `Only the first ${EXCHANGES} exchanges’ bindings and the first ${count(QUEUES * QUEUE_PAGES)} queues’ settings were looked at. `,
  ];
  return h("p", { class: "hint" }, told);
}

function neighbours(vhost, focus) {
  const name = focus.slice(2);
  const isExchange = focus === exchangeId(name);
  return [
    "The neighbours of ",
    isExchange ? "exchange " : "queue ",
    h("a", { href: isExchange ? exchangeLink(vhost, name) : queueLink(vhost, name) }, name),
    ".",
  ];
}

function picture(there, vhost, explained, focus = "") {
  if (!there.nodes.length) {
    const none = focus
      ? "It is not there any more."
      : "Nothing is bound here yet; the default exchange leads to every queue.";
    return h("p", { class: "empty" }, none);
  }
  const route = explained && !explained.problem ? way(explained) : null;
  return h("div", { "data-key": `drawing ${vhost}` }, drawing(there, vhost, route, focus));
}
