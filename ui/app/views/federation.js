// Federation: the links of exchanges and queues to their upstreams, how far they are, and what holds them up.

import { get, path, remove } from "../api.js";
import { h } from "../dom.js";
import { count } from "../format.js";
import { attempt } from "../notices.js";
import { has, host } from "../session.js";
import { badge, hostColumn, section, table } from "../tables.js";

const KINDS = { running: "good", starting: "warning", error: "failed" };

export const federation = {
  title: () => "Federation",

  load: (_, signal) => get(host() ? path`federation-links/${host()}` : "federation-links", signal),

  draw: (found) => [
    h(
      "p",
      { class: "hint" },
      "A link brings messages from an upstream, another broker or virtual host, to an exchange or a queue here. ",
      "Upstreams are set with leveret federation set-upstream; a policy says which exchanges and queues have them.",
    ),
    section(
      "Links",
      found.length
        ? table(columns(), found, ({ vhost, id }) => JSON.stringify([vhost, id]))
        : h("p", { class: "empty" }, "There are no federation links."),
    ),
  ],
};

const columns = () => [
  ["Name", ({ type, [type]: name }) => [name, h("div", { class: "hint" }, type)]],
  ...hostColumn(),
  ["State", ({ status, blocked_status: held, error }) => [
    badge(status, KINDS[status] ?? "warning"),
    held === "flow" && badge("held up", "warning"),
    error && h("p", { class: "warned" }, error),
  ]],
  ["Upstream", ({ upstream, uri }) => [upstream, h("div", { class: "hint" }, h("code", {}, uri))]],
  ["From", ({ type, upstream_exchange: exchange, upstream_queue: queue }) => `${type} ${exchange ?? queue}`],
  ["Brought", ({ forwarded }) => count(forwarded), { number: true }],
  ["", (each) => has() && h("button", { type: "button", onclick: () => restart(each) }, "Restart")],
];

async function restart({ vhost, id, node }) {
  await attempt(() => remove(path`federation-links/vhost/${vhost}/${id}/${node}/restart`), `Link ${id} starts again`);
  document.dispatchEvent(new Event("leveret:changed"));
}
