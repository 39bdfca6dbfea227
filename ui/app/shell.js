// The frame around every view: navigation, the virtual host, the user, and problems of the node.

import { h } from "./dom.js";
import { finder } from "./finding.js";
import { duration } from "./format.js";
import { lists } from "./kept.js";
import { link } from "./routes.js";
import * as session from "./session.js";
import { themeSwitch } from "./theme.js";

// In groups: what is wanted every day, and what is wanted now and then. The third is the tag that a view needs.
const NAVIGATION = {
  "": [
    ["overview", "Overview"],
    ["queues", "Queues"],
    ["exchanges", "Exchanges"],
    ["topology", "Topology"],
    ["connections", "Connections"],
    ["consumers", "Consumers"],
    ["alarms", "Alarms"],
    ["log", "Log", "administrator"],
  ],
  Administration: [
    ["policies", "Policies"],
    ["users", "Users", "administrator"],
    ["vhosts", "Virtual hosts"],
    ["definitions", "Definitions", "administrator"],
  ],
  "Between brokers": [
    ["shovels", "Shovels", "monitoring"],
    ["federation", "Federation", "monitoring"],
  ],
  "In depth": [
    ["channels", "Channels"],
    ["streams", "Streams"],
    ["leases", "Leases"],
    ["transactions", "Transactions"],
  ],
};

export function shell(state, content) {
  return h(
    "div",
    { class: "shell", "data-key": "shell" },
    h("a", { class: "skip", href: "#main", onclick: skip }, "To the content"),
    h("header", { class: "top" }, brand(state), tools()),
    navigation(state.at),
    h("div", { class: "content" }, banners(state), age(state), content),
  );
}

function skip(event) {
  event.preventDefault(); // the part behind `#` is the current view
  document.getElementById("main").focus();
}

const brand = ({ status, ...state }) =>
  h(
    "div",
    { class: "brand" },
    h(
      "button",
      {
        type: "button",
        class: "plain menu",
        "aria-label": "Menu",
        "aria-controls": "navigation",
        "aria-expanded": String(isOpen),
        onclick: toggle,
      },
      "☰",
    ),
    h("img", { src: new URL("../leveret.svg", import.meta.url), alt: "", width: 28, height: 28 }),
    h("a", { href: link([]) }, "Leveret"),
    status && h("span", { class: "node" }, `${status.name} · ${status.version}`),
    health({ status, ...state }),
  );

/** Shows the state of the node in two words, in every view. */
function health({ problem, unreachable, slow, status }) {
  const [text, kind] = unreachable
    ? ["Unreachable", "failed"]
    : problem
      ? ["Not up to date", "failed"]
      : slow
        ? ["Slow", "warning"]
        : status?.alarm || status?.warnings?.length
          ? ["Alarm", "warning"]
          : ["Running", "good"];
  return h("a", { href: link(["alarms"]), class: `badge health ${kind}` }, text);
}

let isOpen = false; // the menu of a phone

function toggle(event) {
  isOpen = !isOpen;
  document.getElementById("navigation").classList.toggle("shown", isOpen);
  event.currentTarget.setAttribute("aria-expanded", isOpen);
}

const tools = () =>
  h(
    "div",
    { class: "row session" },
    h(
      "select",
      { "aria-label": "Virtual host", onchange: chosen, "data-key": "hosts" },
      ["", ...session.hosts()].map((name) =>
        h("option", { value: name, selected: name === session.host() }, name || "All virtual hosts"),
      ),
    ),
    themeSwitch(),
    h("span", { class: "user" }, session.whoever().name),
    h(
      "button",
      { type: "button", onclick: () => document.dispatchEvent(new Event("leveret:out")) },
      "Log out",
    ),
  );

function chosen(event) {
  session.choose(event.currentTarget.value);
  document.dispatchEvent(new Event("leveret:host"));
}

/** Returns the groups of views: a view is the first name of its link, or several. */
const groups = () => [
  ...Object.entries(NAVIGATION),
  ["Protocols", lists().map(({ protocol, list, title }) => [["kept", protocol, list], title])],
];

const isWithin = (names, view) => view.every((name, index) => (names[index] ?? "overview") === name);

const allowed = (views) => views.filter(([, , tag]) => !tag || session.has(tag));

const navigation = ({ names }) =>
  h(
    "nav",
    {
      id: "navigation",
      class: isOpen ? "shown" : null,
      "aria-label": "Views",
      onclick: (event) => {
        if (event.target.closest("a")) isOpen = false;
      },
    },
    finder(groups().flatMap(([, views]) => allowed(views))),
    groups().map(([group, all]) => {
      const views = allowed(all);
      return [
        group && views.length > 0 && h("span", { class: "group" }, group),
        views.map(([name, title]) =>
          h(
            "a",
            { href: link([name].flat()), "aria-current": isWithin(names, [name].flat()) ? "page" : null },
            title,
          ),
        ),
      ];
    }),
  );

/** Tells how old the figures are if the node does not bring newer ones; outside of what is read out when it changes. */
const age = ({ problem, slow, answeredAt }) =>
  (problem || slow) &&
  answeredAt !== null &&
  h("p", { class: "age" }, `These figures are ${duration(Date.now() - answeredAt)} old.`);

function banners({ at, problem, status, unreachable, slow }) {
  const isQuiet = unreachable || at.names[0] === "alarms"; // the page of alarms says it itself
  return h(
    "div",
    { class: "banners", role: "alert" },
    problem &&
      h("p", { class: "banner failed" }, `Not up to date: ${problem}. Trying again every few seconds.`),
    slow && !problem && h("p", { class: "banner warning" }, "The node takes long to answer."),
    status?.alarm &&
      !isQuiet &&
      h(
        "p",
        { class: "banner warning" },
        `Alarm: ${status.alarm}. Publishers are held up. `,
        h("a", { href: link(["alarms"]) }, "More"),
      ),
    !isQuiet &&
      status?.warnings?.map((text) =>
        h("p", { class: "banner warning" }, `Alarm: ${text}. `, h("a", { href: link(["alarms"]) }, "More")),
      ),
  );
}
