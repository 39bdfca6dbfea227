// Federation: the links of exchanges and queues to their upstreams, how far they are, and what holds them up.

import { get, path, put, remove } from "../api.js";
import { written } from "../bindings.js";
import { h } from "../dom.js";
import { form, panel } from "../forms.js";
import { count } from "../format.js";
import { attempt, confirmed } from "../notices.js";
import { link } from "../routes.js";
import { has, host, oneHost } from "../session.js";
import { badge, hostColumn, section, table } from "../tables.js";

const UPSTREAMS = "parameters/federation-upstream";
const upstream = (vhost, name) => `${UPSTREAMS}/${path`${vhost}/${name}`}`;
const ACKS = [
  ["on-confirm", "confirmed here"],
  ["on-publish", "published here"],
  ["no-ack", "sent"],
];
const KINDS = { running: "good", starting: "warning", error: "failed" };

export const federation = {
  title: () => "Federation",

  async load(_, signal) {
    const [links, upstreams] = await Promise.all(
      ["federation-links", ...(has("policymaker") ? [UPSTREAMS] : [])].map((where) =>
        get(host() ? `${where}/${encodeURIComponent(host())}` : where, signal),
      ),
    );
    return { links, upstreams };
  },

  draw: ({ links, upstreams }) => [
    h(
      "p",
      { class: "hint" },
      "A link brings messages from an upstream, another broker or virtual host, to an exchange or a queue here. ",
      "A ",
      h("a", { href: link(["policies"]) }, "policy"),
      " with federation-upstream or federation-upstream-set says which exchanges and queues have them.",
    ),
    upstreams && panel("Add or replace an upstream", setting()),
    section(
      "Links",
      links.length
        ? table(columns(), links, keyOf)
        : h("p", { class: "empty" }, "There are no federation links."),
    ),
    upstreams &&
      section(
        "Upstreams",
        upstreams.length
          ? table(UPSTREAM_COLUMNS, upstreams, keyOf)
          : h("p", { class: "empty" }, "There are no upstreams."),
      ),
  ],
};

const keyOf = ({ vhost, id, name }) => JSON.stringify([vhost, id ?? name]);

const setting = () =>
  form(
    "Set",
    [
      { name: "vhost", label: "Virtual host", value: oneHost(), required: true },
      { name: "name", label: "Name", required: true },
      {
        name: "uri",
        label: "The other broker is at",
        required: true,
        placeholder: "amqps://user:password@host/vhost",
      },
      { name: "exchange", label: "Exchange there", placeholder: "of the same name" },
      { name: "queue", label: "Queue there", placeholder: "of the same name" },
      { name: "max-hops", label: "Most brokers that a message passes", type: "number", min: 1 },
      { name: "expires", label: "What waits there is kept for, in ms, after the link is lost", type: "number", min: 1 },
      { name: "ack-mode", label: "A message leaves there when it is", type: "select", options: ACKS },
    ],
    async ({ vhost, name, ...given }) => {
      const value = Object.fromEntries(
        Object.entries(given).filter(([, each]) => each !== undefined && each !== ""),
      );
      await put(upstream(vhost, name), { value });
      return `Upstream “${name}” is set`;
    },
  );

const UPSTREAM_COLUMNS = [
  ["Name", ({ name }) => name],
  ["Virtual host", ({ vhost }) => vhost],
  ["Settings", ({ value }) => written(value)],
  ["", (each) => h("button", { type: "button", class: "danger", onclick: () => drop(each) }, "Delete")],
];

async function drop({ vhost, name }) {
  if (!(await confirmed(`Delete upstream “${name}”?`, "Delete", "Its links end."))) return;
  await attempt(() => remove(upstream(vhost, name)), `Upstream “${name}” is deleted`);
  document.dispatchEvent(new Event("leveret:changed"));
}

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
  ["Brought", ({ forwarded, unwanted }) => [
    count(forwarded),
    unwanted > 0 && h("div", { class: "hint" }, `${count(unwanted)} not wanted here any more`),
  ], { number: true }],
  ["", (each) => has() && h("button", { type: "button", onclick: () => restart(each) }, "Restart")],
];

async function restart({ vhost, id, node }) {
  await attempt(() => remove(path`federation-links/vhost/${vhost}/${id}/${node}/restart`), `Link ${id} starts again`);
  document.dispatchEvent(new Event("leveret:changed"));
}
