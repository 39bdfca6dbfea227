// Light or dark: as the system has it, until the reader chooses. The choice is kept in this browser.

import { h } from "./dom.js";

const KEPT = "leveret.theme";
const THEMES = [
  ["", "◐", "Colours: as the system"],
  ["light", "☀", "Colours: light"],
  ["dark", "☾", "Colours: dark"],
];

const chosen = () => localStorage.getItem(KEPT) ?? "";

export function applyTheme() {
  document.documentElement.dataset.theme = chosen();
}

/** Returns the button that goes on to the next. */
export function themeSwitch() {
  const at = Math.max(
    THEMES.findIndex(([name]) => name === chosen()),
    0,
  );
  const [, sign, title] = THEMES[at];
  return h("button", { type: "button", class: "plain theme", title, "aria-label": title, onclick: next }, sign);
}

function next(event) {
  const at = THEMES.findIndex(([name]) => name === chosen());
  localStorage.setItem(KEPT, THEMES[(at + 1) % THEMES.length][0]);
  applyTheme();
  event.currentTarget.replaceWith(themeSwitch());
}
