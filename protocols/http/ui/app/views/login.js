// The way in.

import { h } from "../dom.js";

export function login(reason, enter) {
  const told = h("p", { class: "banner failed", role: "alert", hidden: !reason }, reason);
  return h(
    "main",
    { class: "login", "data-key": `login ${Math.random()}` },
    h(
      "form",
      { class: "card", onsubmit: (event) => submitted(event, told, enter) },
      h(
        "div",
        { class: "brand" },
        h("img", { src: "ui/leveret.svg", alt: "", width: 40, height: 40 }),
        h("h1", {}, "Leveret"),
      ),
      told,
      h(
        "label",
        {},
        h("span", {}, "User name"),
        h("input", {
          name: "name",
          required: true,
          autofocus: true,
          autocomplete: "username",
          autocapitalize: "none",
          spellcheck: "false",
        }),
      ),
      h(
        "label",
        {},
        h("span", {}, "Password or token"),
        h("input", { name: "password", type: "password", autocomplete: "current-password" }),
      ),
      h("button", { type: "submit", class: "main" }, "Log in"),
    ),
  );
}

async function submitted(event, told, enter) {
  event.preventDefault();
  const given = new FormData(event.currentTarget);
  const button = event.currentTarget.querySelector("button");
  button.disabled = true;
  try {
    await enter(given.get("name"), given.get("password"));
  } catch (problem) {
    told.textContent = problem.message;
    told.hidden = false;
    button.disabled = false;
  }
}
