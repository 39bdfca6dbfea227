// Users, their tags and their permissions.

import { get, path, put, remove } from "../api.js";
import { h } from "../dom.js";
import { form, panel } from "../forms.js";
import { limits } from "../limits.js";
import { attempt, confirmed } from "../notices.js";
import { link } from "../routes.js";
import { isLetIn, oneHost, tagsOf } from "../session.js";
import { badge, list, page, section, table } from "../tables.js";

const TAGS_HINT = "Separated by commas: management, policymaker, monitoring, administrator";
const listOf = (text) =>
  text
    .split(",")
    .map((tag) => tag.trim())
    .filter(Boolean)
    .join(",");

export const users = {
  title: () => "Users",
  load: (at, signal) => page("users", at.query, {}, signal),
  draw: (found, at) => [
    panel("Add a user", adding()),
    list(
      "users",
      [
        ["Name", ({ name }) => h("a", { href: link(["users", name]) }, name), { sort: "name" }],
        ["Tags", (user) => tagsOf(user).map((tag) => badge(tag))],
        ["Limits", ({ limits: set }) => Object.keys(set ?? {}).length > 0 && badge(JSON.stringify(set))],
      ],
      found,
      ({ name }) => name,
      at,
    ),
  ],
};

const adding = () =>
  form(
    "Add",
    [
      { name: "name", label: "Name", required: true },
      { name: "password", label: "Password", type: "password", required: true },
      { name: "tags", label: "Tags", hint: TAGS_HINT },
    ],
    async ({ name, password, tags }) => {
      // The node would give this password and these tags to an existing user.
      const known = await get("users?columns=name");
      if (known.some((each) => each.name === name)) throw new Error(`There is a user “${name}” already`);
      await put(path`users/${name}`, { password, tags: listOf(tags) });
      location.hash = link(["users", name]);
      return `User “${name}” is there; give it permissions`;
    },
  );

export const user = {
  title: ({ names: [, name] }) => `User ${name}`,

  async load({ names: [, name] }, signal) {
    const parts = [
      path`users/${name}`,
      path`users/${name}/permissions`,
      path`users/${name}/topic-permissions`,
      path`user-limits/${name}`,
    ];
    const [found, permissions, topics, set] = await Promise.all(parts.map((where) => get(where, signal)));
    return { found, permissions, topics, limits: set[0]?.value ?? {} };
  },

  draw: ({ found, permissions, topics, limits: set }, { names: [, name] }) => [
    h(
      "p",
      { class: "hint" },
      tagsOf(found).map((tag) => badge(tag)),
      isLetIn(tagsOf(found)) ? null : " No tag that lets the user log in here, such as management.",
    ),
    section("Permissions", permitted(permissions, "permissions", ["configure", "write", "read"])),
    panel("Set permissions", permitting(name)),
    section("Topic permissions", permitted(topics, "topic-permissions", ["exchange", "write", "read"])),
    panel("Set topic permissions", topicPermitting(name)),
    limits(path`user-limits/${name}`, set, ["max-connections", "max-channels", "max-publish-rate"]),
    panel("Change password or tags", changing(found, name)),
    h(
      "div",
      { class: "row ends" },
      h("button", { type: "button", class: "danger", onclick: () => drop(name) }, "Delete user"),
    ),
  ],
};

function permitted(found, kind, names) {
  if (!found.length) return h("p", { class: "empty" }, "There are none.");
  return table(
    [
      ["Virtual host", ({ vhost }) => vhost],
      ...names.map((name) => [name[0].toUpperCase() + name.slice(1), (each) => h("code", {}, each[name])]),
      ["", (each) => h("button", { type: "button", onclick: () => clear(each, kind) }, "Clear")],
    ],
    found,
    ({ vhost, exchange }) => JSON.stringify([vhost, exchange]),
  );
}

async function clear({ user: name, vhost, exchange }, kind) {
  if (!(await confirmed(`Take the ${kind.replace("-", " ")} in “${vhost}” from user “${name}”?`, "Clear")))
    return;
  const one = exchange === undefined ? "" : path`/${exchange}`;
  await attempt(() => remove(kind + path`/${vhost}/${name}` + one), "The permissions are cleared");
  document.dispatchEvent(new Event("leveret:changed"));
}

const pattern = (name, label) => ({ name, label: `${label} (regular expression)`, value: ".*" });
const VHOST = () => ({ name: "vhost", label: "Virtual host", value: oneHost(), required: true });

const permitting = (name) =>
  form(
    "Set permissions",
    [VHOST(), pattern("configure", "Configure"), pattern("write", "Write"), pattern("read", "Read")],
    async ({ vhost, ...wanted }) => {
      await put(path`permissions/${vhost}/${name}`, wanted);
      return `Permissions of “${name}” in “${vhost}” are set`;
    },
  );

const topicPermitting = (name) =>
  form(
    "Set topic permissions",
    [
      VHOST(),
      { name: "exchange", label: "Topic exchange", value: "amq.topic", required: true },
      pattern("write", "Write"),
      pattern("read", "Read"),
    ],
    async ({ vhost, ...wanted }) => {
      await put(path`topic-permissions/${vhost}/${name}`, wanted);
      return `Topic permissions of “${name}” in “${vhost}” are set`;
    },
  );

// Without a new password the present hash is sent back: tags change, the password stays.
const changing = (found, name) =>
  form(
    "Change",
    [
      { name: "password", label: "New password", type: "password", hint: "Empty: stays as it is" },
      { name: "tags", label: "Tags", value: tagsOf(found).join(", "), hint: TAGS_HINT },
    ],
    async ({ password, tags }) => {
      const secret = password ? { password } : await keptSecret(name);
      await put(path`users/${name}`, { ...secret, tags: listOf(tags) });
      return `User “${name}” is changed`;
    },
  );

// Asked for now, because it may have changed since the form was drawn.
async function keptSecret(name) {
  const { password_hash: hash, hashing_algorithm: algorithm } = await get(path`users/${name}`);
  return { password_hash: hash, hashing_algorithm: algorithm };
}

async function drop(name) {
  if (!(await confirmed(`Delete user “${name}”?`, "Delete", "Its connections are closed."))) return;
  if (await attempt(() => remove(path`users/${name}`), `User “${name}” is deleted`))
    location.hash = link(["users"]);
}
