// Virtual hosts: their limits, the users that may enter, and tracing.

import { get, path, put, query, remove } from "../api.js";
import { SAMPLED } from "../charts.js";
import { h } from "../dom.js";
import { form, panel } from "../forms.js";
import { limits } from "../limits.js";
import { count } from "../format.js";
import { attempt, confirmed } from "../notices.js";
import { link } from "../routes.js";
import { has } from "../session.js";
import { badge, facts, list, page, section, table } from "../tables.js";
import { messages, queued } from "./overview.js";

export const virtualHosts = {
  title: () => "Virtual hosts",
  load: (at, signal) => page("vhosts", at.query, {}, signal),
  draw: (found, at) => [
    has() && panel("Add a virtual host", adding()),
    list(
      "virtual hosts",
      [
        [
          "Name",
          ({ name }) => (has() ? h("a", { href: link(["vhosts", name]) }, name) : name),
          { sort: "name" },
        ],
        ["Description", ({ description }) => description],
        ["Default queue type", (each) => each.default_queue_type],
        ["Tracing", ({ tracing }) => tracing && badge("on", "warning")],
        ["Ready", (each) => count(each.messages_ready ?? 0), { sort: "messages_ready", number: true }],
        ["Total", (each) => count(each.messages ?? 0), { sort: "messages", number: true }],
      ],
      found,
      ({ name }) => name,
      at,
    ),
  ],
};

const TYPE = {
  name: "default_queue_type",
  label: "Default queue type",
  type: "select",
  options: ["", "classic", "quorum", "stream"],
  hint: "of queues whose declaration names none",
};

const typing = (name, type) =>
  form("Set", [{ ...TYPE, value: type, options: TYPE.options.slice(1) }], async (said) => {
    await put(path`vhosts/${name}`, said);
    return `New queues of “${name}” that name no type are ${said.default_queue_type}`;
  });

const adding = () =>
  form(
    "Add",
    [
      { name: "name", label: "Name", required: true },
      { name: "description", label: "Description" },
      TYPE,
    ],
    async ({ name, description, default_queue_type }) => {
      await put(path`vhosts/${name}`, { description, ...(default_queue_type && { default_queue_type }) });
      return `Virtual host “${name}” is there`;
    },
  );

export const virtualHost = {
  title: ({ names: [, name] }) => `Virtual host ${name}`,

  async load({ names: [, name] }, signal) {
    const parts = [
      path`vhosts/${name}` + query(SAMPLED),
      path`vhosts/${name}/permissions`,
      path`vhost-limits/${name}`,
    ];
    const [found, permissions, set] = await Promise.all(parts.map((where) => get(where, signal)));
    return { found, permissions, limits: set[0]?.value ?? {} };
  },

  draw: ({ found, permissions, limits: set }, { names: [, name] }) => [
    h("div", { class: "charts" }, queued(found), messages(found.message_stats)),
    section(
      "Details",
      facts([
        ["Description", found.description],
        ["Default queue type", found.default_queue_type],
        ["Tracing", found.tracing ? "on" : "off"],
        ["Topology", h("a", { href: link(["topology"], { vhost: name }) }, "Drawing")],
      ]),
    ),
    section(
      "Users that may enter",
      permissions.length
        ? table(
            [
              ["User", ({ user }) => h("a", { href: link(["users", user]) }, user)],
              ...["configure", "write", "read"].map((each) => [
                each[0].toUpperCase() + each.slice(1),
                (given) => h("code", {}, given[each]),
              ]),
            ],
            permissions,
            ({ user }) => user,
          )
        : h("p", { class: "empty" }, "Nobody may."),
    ),
    limits(path`vhost-limits/${name}`, set, ["max-connections", "max-queues", "max-publish-rate"]),
    has() && panel("Default queue type", typing(name, found.default_queue_type)),
    h(
      "div",
      { class: "row ends" },
      h(
        "button",
        { type: "button", onclick: () => trace(found, name) },
        found.tracing ? "Stop tracing" : "Trace messages",
      ),
      h("button", { type: "button", class: "danger", onclick: () => drop(name) }, "Delete virtual host"),
    ),
  ],
};

async function trace({ tracing }, name) {
  const told = tracing ? "Tracing is off" : "Copies of all messages go to amq.rabbitmq.trace now";
  await attempt(() => put(path`vhosts/${name}`, { tracing: !tracing }), told);
  document.dispatchEvent(new Event("leveret:changed"));
}

async function drop(name) {
  if (
    !(await confirmed(
      `Delete virtual host “${name}”?`,
      "Delete",
      "All its queues, exchanges and messages are lost.",
    ))
  )
    return;
  if (!(await attempt(() => remove(path`vhosts/${name}`), `Virtual host “${name}” is deleted`))) return;
  location.hash = link(["vhosts"]);
  document.dispatchEvent(new Event("leveret:changed"));
}
