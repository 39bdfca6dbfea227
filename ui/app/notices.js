// Notices of results and refusals, and questions before an action that cannot be undone.

import { h } from "./dom.js";

const SHOWN_MS = { done: 6000, failed: 20_000 }; // the time to read one
const SHOWN_MAX = 4;

/** Shows a notice, which goes by itself, but not under the pointer or with the focus in it. */
export function notice(text, kind = "done") {
  const all = document.getElementById("notices");
  const shown = h(
    "div",
    { class: `notice ${kind}` },
    h("p", {}, text),
    h(
      "button",
      { type: "button", class: "plain", "aria-label": "Dismiss", onclick: () => shown.remove() },
      "×",
    ),
  );
  all.append(shown);
  while (all.children.length > SHOWN_MAX) all.firstElementChild.remove();
  leaves(shown, SHOWN_MS[kind]);
}

function leaves(shown, after) {
  setTimeout(() => (shown.matches(":hover, :focus-within") ? leaves(shown, after) : shown.remove()), after);
}

/** Ends the questions of a view that is left, with no, and takes its refusals away. */
export function leave() {
  for (const dialog of document.querySelectorAll("dialog[open]")) dialog.close("no");
  for (const refusal of document.querySelectorAll("#notices .failed")) refusal.remove();
}

/** A line for each argument or key of an object that has no effect. */
export const warned = ({ warnings: found }) =>
  (found ?? []).map((text) => h("p", { class: "warned" }, `⚠ ${text}`));

/** Does it, and shows `done` (nothing if null) or why it failed. Returns whether it succeeded. */
export async function attempt(action, done) {
  try {
    const told = await action();
    if (typeof told === "string" || done) notice(typeof told === "string" ? told : done);
    return true;
  } catch (problem) {
    notice(problem.message, "failed");
    return false;
  }
}

/** Asks whether to go on. Escape, and the button that has the focus at first, say no. */
export function confirmed(question, verb, more = null) {
  return new Promise((resolve) => {
    const dialog = h(
      "dialog",
      { "aria-label": question, onclose: () => closed(dialog, resolve) },
      h(
        "form",
        { method: "dialog", onsubmit: () => {} },
        h("p", { class: "question" }, question),
        more && h("p", { class: "hint" }, more),
        h(
          "div",
          { class: "row end" },
          h("button", { type: "button", autofocus: true, onclick: () => dialog.close("no") }, "Cancel"),
          h("button", { type: "button", class: "danger", onclick: () => dialog.close("yes") }, verb),
        ),
      ),
    );
    document.body.append(dialog);
    dialog.showModal();
  });
}

function closed(dialog, resolve) {
  resolve(dialog.returnValue === "yes");
  dialog.remove();
}
