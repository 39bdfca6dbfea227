// Policies and operator policies, which take precedence: a list, and a form that adds or changes one.

import { get, path, put, remove } from "../api.js";
import { written } from "../bindings.js";
import { h } from "../dom.js";
import { form, panel } from "../forms.js";
import { value } from "../format.js";
import { namesOf } from "../names.js";
import { attempt, confirmed, warned } from "../notices.js";
import { link } from "../routes.js";
import { has, host, oneHost } from "../session.js";
import { section, table } from "../tables.js";

const KINDS = {
  policies: { title: "Policies", one: "policy", add: "Add a policy" },
  "operator-policies": { title: "Operator policies", one: "operator policy", add: "Add an operator policy" },
};

// The keys with a field of their own; every other one has a line in the last field.
const number = (key, label, more = {}) => ({ key, label, type: "number", min: 0, bounds: true, ...more });
const KEYS = [
  number("max-length", "Most messages in a queue"),
  number("max-length-bytes", "Most bytes in a queue"),
  {
    key: "overflow",
    label: "When it is full",
    type: "select",
    options: [
      ["", "as the queue says"],
      ["drop-head", "drop the oldest"],
      ["reject-publish", "refuse new ones"],
      ["reject-publish-dlx", "refuse and dead-letter new ones"],
    ],
  },
  number("message-ttl", "Messages expire after, in ms"),
  number("expires", "Queues unused for so long are deleted, in ms", { min: 1 }),
  number("delivery-limit", "Most deliveries of a message"),
  { key: "dead-letter-exchange", label: "Dead letters go to the exchange", names: "exchanges" },
  { key: "dead-letter-routing-key", label: "Dead letters get the routing key" },
  { key: "alternate-exchange", label: "What no queue takes goes to the exchange", names: "exchanges" },
  { key: "max-age", label: "Streams keep messages for", placeholder: "7D, 12h" },
];
const keysOf = (kind) => (kind === "policies" ? KEYS : KEYS.filter(({ bounds }) => bounds));
const field = (key) => `key-${key}`;

export const policies = {
  title: () => "Policies",

  async load(_, signal) {
    const [own, operators] = await Promise.all(
      Object.keys(KINDS).map((kind) => get(host() ? `${kind}/${encodeURIComponent(host())}` : kind, signal)),
    );
    return { policies: own, "operator-policies": operators };
  },

  draw: (found, at) =>
    Object.keys(KINDS).map((kind) => [
      mayChange(kind) && panel(KINDS[kind].add, editing(kind)),
      section(KINDS[kind].title, listed(kind, found[kind], at)),
      mayChange(kind) && changing(kind, found[kind], at),
    ]),
};

const mayChange = (kind) => (kind === "policies" ? has("policymaker") : has());

function listed(kind, found, at) {
  if (!found.length) return h("p", { class: "empty" }, "There are none.");
  return table(
    [
      ["Name", ({ name }) => name],
      ["Virtual host", ({ vhost }) => vhost],
      ["Pattern", ({ pattern }) => h("code", {}, pattern)],
      ["Applies to", (each) => each["apply-to"]],
      ["Definition", (each) => [written(each.definition), warned(each)]],
      ["Priority", ({ priority }) => String(priority), { number: true }],
      ["", (each) => mayChange(kind) && actions(kind, each, at)],
    ],
    found,
    ({ vhost, name }) => JSON.stringify([vhost, name]),
  );
}

const actions = (kind, each, at) =>
  h(
    "div",
    { class: "row" },
    h("a", { class: "button", href: link(at.names, { ...at.query, edit: idOf(kind, each) }) }, "Edit"),
    h("button", { type: "button", class: "danger", onclick: () => drop(kind, each) }, "Delete"),
  );

const idOf = (kind, { vhost, name }) => JSON.stringify([kind, vhost, name]);

/** The form of the policy that the link names. */
function changing(kind, found, at) {
  const one = found.find((each) => idOf(kind, each) === at.query.edit);
  if (!one) return null;
  const { edit, ...rest } = at.query;
  return h(
    "section",
    { class: "card", "data-key": `edit ${edit}` },
    h("h2", {}, `Change ${KINDS[kind].one} ${one.name}`),
    editing(kind, one, () => {
      location.hash = link(at.names, rest);
    }),
    h("p", { class: "ends" }, h("a", { href: link(at.names, rest) }, "Leave it as it is")),
  );
}

async function drop(kind, { vhost, name }) {
  const { one } = KINDS[kind];
  if (!(await confirmed(`Delete ${one} “${name}”?`, "Delete"))) return;
  await attempt(() => remove(kind + path`/${vhost}/${name}`), `The ${one} is deleted`);
  document.dispatchEvent(new Event("leveret:changed"));
}

/** Returns the form of a policy: an empty one, or of `one` that is there, whose name and virtual host stay. */
function editing(kind, one = null, then = () => {}) {
  const given = one?.definition ?? {};
  const keys = keysOf(kind);
  const others = Object.entries(given).filter(([name]) => !keys.some(({ key }) => key === name));
  return form(
    one ? "Save" : KINDS[kind].add,
    [
      ...(one
        ? []
        : [
            { name: "vhost", label: "Virtual host", value: oneHost(), required: true },
            { name: "name", label: "Name", required: true },
          ]),
      { name: "pattern", label: "Pattern (regular expression of names)", value: one?.pattern ?? ".*", required: true },
      {
        name: "apply",
        label: "Applies to",
        type: "select",
        value: one?.["apply-to"],
        options: kind === "policies" ? ["all", "queues", "exchanges", "classic_queues", "quorum_queues", "streams"] : ["queues"],
      },
      { name: "priority", label: "Priority", type: "number", value: one?.priority ?? 0 },
      ...keys.map(({ key, names, ...rest }) => ({
        name: field(key),
        value: given[key] ?? "",
        complete: names && namesOf(names, (filled) => one?.vhost ?? filled.elements.vhost.value),
        ...rest,
      })),
      {
        name: "definition",
        label: "Other keys",
        type: "table",
        hint: "One a line: name = value",
        value: others.map(([name, set]) => `${name} = ${value(set)}`).join("\n"),
      },
    ],
    async ({ vhost = one?.vhost, name = one?.name, pattern, apply, priority = 0, definition, ...set }) => {
      for (const { key } of keys) {
        const entered = set[field(key)];
        if (entered !== undefined && entered !== "") definition[key] = entered;
      }
      if (!Object.keys(definition).length) throw new Error("A policy needs at least one key.");
      await put(kind + path`/${vhost}/${name}`, { pattern, "apply-to": apply, priority, definition });
      return `${name} applies now`;
    },
    then,
  );
}
