// The box that leads anywhere: to views, to forms, and by their names to what the node has. `/` puts the cursor into it.

import { get, path, query } from "./api.js";
import { h } from "./dom.js";
import { ranked } from "./ranking.js";
import { exchangeLink, link, queueLink } from "./routes.js";
import { has, host, hosts } from "./session.js";

const OFFERED = 8;
const ASKED = 8; // of each kind of object

// The form by its title, the view that has it, and the tag that it needs.
const FORMS = [
  ["Declare a queue", "queues"],
  ["Declare an exchange", "exchanges"],
  ["Add a policy", "policies", "policymaker"],
  ["Add an operator policy", "policies", "administrator"],
  ["Add a user", "users", "administrator"],
  ["Add a virtual host", "vhosts", "administrator"],
  ["Add or replace a shovel", "shovels", "policymaker"],
  ["Add or replace an upstream", "federation", "policymaker"],
  ["Change what is logged", "log", "administrator"],
];

// What the node is asked for by name: the list, and the link of one.
const OBJECTS = [
  ["queue", () => inHost("queues"), ({ vhost, name }) => queueLink(vhost, name)],
  ["exchange", () => inHost("exchanges"), ({ vhost, name }) => exchangeLink(vhost, name)],
  ["connection", () => (host() ? path`vhosts/${host()}/connections` : "connections"), ({ name }) => link(["connections", name])],
  ["user", () => has() && "users", ({ name }) => link(["users", name])],
];

const inHost = (kind) => (host() ? `${kind}/${encodeURIComponent(host())}` : kind);

/** Returns the box. `views` are those of the navigation that the user may see: [name or names, title]. */
export function finder(views) {
  const list = h("div", { id: "found", role: "listbox", "aria-label": "Found", hidden: true });
  const box = h("input", {
    id: "find",
    role: "combobox",
    "aria-label": "Find or do",
    "aria-autocomplete": "list",
    "aria-controls": "found",
    "aria-expanded": "false",
    "aria-keyshortcuts": "/",
    placeholder: "Find or do …  /",
    autocomplete: "off",
    autocapitalize: "none",
    spellcheck: "false",
    oninput: () => offer(),
    onkeydown: (event) => pressed(event),
    onblur: () => show([]),
  });
  let chosen = 0;
  let offered = Promise.resolve(); // until what is typed has been answered

  function offer() {
    offered = offering(box.value.trim());
  }

  async function offering(typed) {
    if (!typed) {
      show([]);
      return;
    }
    const known = [...views.map(([name, title]) => [title, "view", link([name].flat())]), ...forms()];
    show(ranked(typed, known).slice(0, OFFERED));
    const found = await objects(typed);
    if (box.value.trim() === typed) show(ranked(typed, [...known, ...found]).slice(0, OFFERED));
  }

  function show(options) {
    chosen = 0;
    list.replaceChildren(...options.map(option));
    list.hidden = options.length === 0;
    box.setAttribute("aria-expanded", String(options.length > 0));
    point();
  }

  function point() {
    [...list.children].forEach((each, index) => each.setAttribute("aria-selected", String(index === chosen)));
    const at = list.children[chosen];
    if (at) box.setAttribute("aria-activedescendant", at.id);
    else box.removeAttribute("aria-activedescendant");
    at?.scrollIntoView({ block: "nearest" });
  }

  const option = ([name, kind, href], index) =>
    h(
      "a",
      {
        id: `found-${index}`,
        role: "option",
        tabindex: "-1",
        href,
        onmousedown: (event) => event.preventDefault(), // the box keeps the cursor until the click
        onclick: () => clear(),
      },
      name,
      h("span", { class: "hint" }, kind),
    );

  function clear() {
    box.value = "";
    box.blur();
  }

  async function pressed(event) {
    const count = list.children.length;
    if (event.key === "ArrowDown" || event.key === "ArrowUp") {
      event.preventDefault();
      if (count) chosen = (chosen + (event.key === "ArrowDown" ? 1 : count - 1)) % count;
      point();
    } else if (event.key === "Escape") {
      clear();
    } else if (event.key === "Enter") {
      event.preventDefault();
      await offered;
      list.children[chosen]?.click();
    }
  }

  return h("div", { class: "finder", "data-keep": true, "data-key": "finder" }, box, list);
}

const forms = () =>
  FORMS.filter(([, , tag]) => !tag || has(tag)).map(([title, view]) => [title, "form", link([view], { open: title })]);

/** Returns what the node has with this text in its name; what it does not answer is left out. */
async function objects(typed) {
  const asked = { page: 1, page_size: ASKED, name: typed };
  const found = await Promise.all(
    OBJECTS.map(async ([kind, where, linkTo]) => {
      const list = where();
      if (!list) return [];
      const { items = [] } = await get(list + query({ ...asked, columns: "name,vhost" })).catch(() => ({}));
      return items.filter(({ name }) => name).map((each) => [each.name, told(kind, each), linkTo(each)]);
    }),
  );
  const places = hosts().filter((name) => has() && name.includes(typed));
  return [...found.flat(), ...places.map((name) => [name, "virtual host", link(["vhosts", name])])];
}

const told = (kind, { vhost }) => (vhost && hosts().length > 1 && !host() ? `${kind} in ${vhost}` : kind);

/** Puts the cursor into the box when `/` is pressed outside of fields and questions. */
export function listenForSlash() {
  document.addEventListener("keydown", (event) => {
    const isTyped = event.target.closest?.("input, textarea, select, dialog") || event.ctrlKey || event.metaKey || event.altKey;
    const box = document.getElementById("find");
    if (event.key !== "/" || isTyped || !box?.checkVisibility()) return;
    event.preventDefault();
    box.focus();
  });
}

/** Takes the form that a link names (`?open=`) out of it: it is opened once, and what the reader closes stays closed. */
export function taken({ names, query }) {
  const { open, ...rest } = query;
  if (open) history.replaceState(null, "", link(names, rest));
  delete query.open;
  return open;
}

/** Opens the form with this title, if the view has it. */
export function openNamed(title) {
  const panels = [...document.querySelectorAll("#main details")];
  const named = panels.find((each) => each.querySelector("summary").textContent === title);
  if (named) named.open = true;
}
