// A virtual host's exchanges and queues as a drawing, and the route of a message through it.

import { Failure, get, path, query } from "../api.js";
import { h } from "../dom.js";
import { drawing } from "../drawing.js";
import { form } from "../forms.js";
import { count, table as read, value } from "../format.js";
import { NODES_MAX, graph, way, words } from "../graph.js";
import { DEFAULT_EXCHANGE, link } from "../routes.js";
import { has, oneHost } from "../session.js";
import { page, section } from "../tables.js";

const EXCHANGES = 60; // whose bindings are loaded
const QUEUES = 300; // whose settings are loaded
const BINDINGS = 200; // of each exchange: a fanout may have thousands, and the drawing has no room for them
const BOUND = "source,destination,destination_type,routing_key";
const shownHost = (chosen) => chosen.vhost || oneHost();

export const topology = {
  title: ({ query: chosen }) => `Topology of ${shownHost(chosen)}`,
  refresh_ms: 30_000, // it takes many requests, and changes seldom

  async load({ query: chosen }, signal) {
    const vhost = shownHost(chosen);
    const [exchanges, queues] = await Promise.all([
      get(path`exchanges/${vhost}` + query({ page: 1, page_size: EXCHANGES }), signal),
      get(
        path`queues/${vhost}` +
          query({
            page: 1,
            page_size: QUEUES,
            columns: "name,type,arguments,effective_policy_definition,messages",
          }),
        signal,
      ),
    ]);
    const known = exchanges.items.filter(({ name }) => name !== "");
    const asked =
      chosen.exchange && !known.some(({ name }) => name === chosen.exchange)
        ? await alone(vhost, chosen.exchange, signal)
        : [];
    const all = [...known, ...asked];
    const bindings = await Promise.all(
      all.map(({ name }) => bindingsFrom(vhost, name, signal)),
    );
    return {
      vhost,
      exchanges: all,
      queues: queues.items,
      bindings: bindings.flatMap(({ items }) => items),
      unasked: bindings.reduce((sum, { items, total_count: all_of }) => sum + all_of - items.length, 0),
      more: exchanges.page_count > 1 || queues.page_count > 1,
      explained: chosen.explain ? await explanation(vhost, chosen, signal) : null,
    };
  },

  draw: (found, { query: chosen }) => {
    const there = graph(found.exchanges, found.queues, found.bindings, chosen.exchange ?? "");
    return [
      has("monitoring") &&
        section("Explain a route", asking(found, chosen), found.explained && told(found.explained)),
      section("Drawing", remarks(there, found, chosen), picture(there, found)),
    ];
  },
};

const bindingsFrom = (vhost, name, signal) =>
  page(path`exchanges/${vhost}/${name}/bindings/source`, {}, { page_size: BINDINGS, columns: BOUND }, signal);

const alone = (vhost, name, signal) =>
  get(path`exchanges/${vhost}/${name}`, signal).then(
    (each) => [each],
    () => [],
  );

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
function asking(found, chosen) {
  const made = form(
    "Explain",
    [
      {
        name: "exchange",
        label: "Exchange",
        value: chosen.exchange ?? "",
        placeholder: "the default exchange",
      },
      { name: "key", label: "Routing key", value: chosen.key ?? "" },
      {
        name: "headers",
        label: "Headers",
        type: "textarea",
        rows: 1,
        value: chosen.headers ?? "",
        placeholder: "name = value",
      },
    ],
    async ({ exchange, key, headers }) => {
      read(headers);
      location.hash = link(["topology"], { vhost: found.vhost, exchange, key, headers, explain: "yes" });
    },
  );
  made.classList.add("across");
  made.setAttribute("data-key", JSON.stringify(["explain", found.vhost, chosen.exchange ?? ""]));
  return made;
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

function remarks({ left }, { more, unasked, vhost }, { exchange }) {
  const told = [
    exchange && [
      "What “",
      exchange === DEFAULT_EXCHANGE ? "the default exchange" : exchange,
      "” leads to. ",
      h("a", { href: link(["topology"], { vhost }) }, "Show all"),
      " ",
    ],
    left > 0 &&
      `${left} more are left out: the drawing holds ${NODES_MAX}. Begin from an exchange to see its part. `,
    unasked > 0 &&
      `${count(unasked)} bindings more are left out: of each exchange the first ${BINDINGS} are drawn. `,
    more &&
      `Only the first ${EXCHANGES} exchanges’ bindings and the first ${QUEUES} queues’ settings were looked at. `,
  ];
  return h("p", { class: "hint" }, told);
}

function picture(there, found) {
  if (!there.nodes.length)
    return h(
      "p",
      { class: "empty" },
      "Nothing is bound here yet; the default exchange leads to every queue.",
    );
  const shown = drawing(
    there,
    found.vhost,
    found.explained && !found.explained.problem ? way(found.explained) : null,
  );
  return h("div", { "data-key": "drawing" }, shown);
}
