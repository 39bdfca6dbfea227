// The login, with a name and a password, or with a token.

import { h } from "../dom.js";
import { leaveFor, nameOf, offered } from "../openid.js";

const HIDDEN = { autocapitalize: "none", spellcheck: "false" };

/** `enter` gets {name, password} or {token}, and throws if the login fails. `byToken`: the last login was by token. */
export function login(reason, enter, byToken) {
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
        h("img", { src: new URL("../../leveret.svg", import.meta.url), alt: "", width: 40, height: 40 }),
        h("h1", {}, "Leveret"),
      ),
      told,
      byPassword(!byToken),
      token(byToken),
      h("button", { type: "submit", class: "main" }, "Log in"),
      h(
        "button",
        { type: "button", class: "plain other", onclick: (event) => change(event, told) },
        other(byToken),
      ),
      atIssuer(told),
    ),
  );
}

/** A button for the issuer's login, which comes when the node has said that there is one. */
function atIssuer(told) {
  const there = h("div", {});
  offered().then((offer) => {
    if (!offer) return;
    const onclick = () => leaveFor(offer).catch((problem) => fail(told, problem));
    there.append(
      h("p", { class: "or" }, "or"),
      h("button", { type: "button", class: "issuer", onclick }, `Log in with ${nameOf(offer)}`),
    );
  });
  return there;
}

function fail(told, problem) {
  told.textContent = problem.message;
  told.hidden = false;
}

const other = (byToken) => (byToken ? "Log in with a password" : "Log in with a token");

// The other kind of login is disabled, so that its fields are neither required nor sent.
const way = (name, taken, ...fields) => h("fieldset", { name, hidden: !taken, disabled: !taken }, fields);

const byPassword = (taken) =>
  way(
    "by password",
    taken,
    h(
      "label",
      {},
      h("span", {}, "User name"),
      h("input", { name: "name", required: true, autocomplete: "username", ...HIDDEN }),
    ),
    h(
      "label",
      {},
      h("span", {}, "Password"),
      h("input", { name: "password", type: "password", autocomplete: "current-password" }),
    ),
  );

const token = (taken) =>
  way(
    "by token",
    taken,
    h(
      "label",
      {},
      h("span", {}, "Token"),
      h("input", {
        name: "token",
        type: "password",
        required: true,
        autocomplete: "off",
        ...HIDDEN,
      }),
      h("small", { class: "hint" }, "A JSON Web Token of the issuer that this node trusts."),
    ),
  );

function change(event, told) {
  const form = event.currentTarget.form;
  for (const each of form.querySelectorAll("fieldset")) each.hidden = each.disabled = !each.hidden;
  told.hidden = true;
  event.currentTarget.textContent = other(form.elements["by password"].hidden);
  form.querySelector("fieldset:enabled input").focus();
}

async function submitted(event, told, enter) {
  event.preventDefault();
  const given = Object.fromEntries(new FormData(event.currentTarget));
  const button = event.currentTarget.querySelector("button[type=submit]");
  button.disabled = true;
  try {
    await enter(given);
  } catch (problem) {
    fail(told, problem);
    button.disabled = false;
  }
}
