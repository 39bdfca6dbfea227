// Makes forms from lists of fields. Refreshing the page leaves them alone, unless their initial values have changed.
//
//     form("Declare", [{name: "name", label: "Name", required: true}, ...], async (values) => "Queue declared")

import { h } from "./dom.js";
import { table } from "./format.js";
import { notice } from "./notices.js";

const READ = {
  number: (text) => (text === "" ? undefined : Number(text)),
  table: (text) => table(text),
  checkbox: (text) => text === "on",
};

/**
 * `action` gets the values by name: numbers and tables as such, no number if the field is empty. What it returns or
 * throws is shown. `then` is called after success, before the page refreshes itself.
 */
export function form(verb, fields, action, then = () => {}) {
  // A form with other initial values is another form.
  const key = JSON.stringify([verb, fields.map(({ name, value }) => [name, value])]);
  const made = h(
    "form",
    { "data-keep": true, "data-key": key, onsubmit: submitted },
    h(
      "fieldset",
      { class: "all" },
      fields.map(labelled),
      h("div", { class: "row" }, h("button", { type: "submit", class: "main" }, verb)),
    ),
  );

  // Disabled until the page shows what has changed: it may replace this form, and what was typed into it meanwhile.
  async function submitted(event) {
    event.preventDefault();
    const all = made.querySelector(".all");
    const focused = document.activeElement;
    try {
      const given = values(made, fields);
      all.disabled = true;
      const told = await action(given);
      if (told) notice(told);
      for (const secret of made.querySelectorAll("input[type=password]")) secret.value = "";
      then();
      await refreshed();
    } catch (problem) {
      notice(problem.message, "failed");
    } finally {
      all.disabled = false;
      if (document.activeElement === document.body && made.contains(focused)) focused.focus({ preventScroll: true });
    }
  }
  return made;
}

/** Has the page refresh itself, and waits until it has, or has failed to. */
const refreshed = () =>
  new Promise((resolve) => {
    document.dispatchEvent(new CustomEvent("leveret:changed", { detail: resolve }));
  });

/** A form that opens on demand, with the cursor where typing begins. */
export const panel = (title, content) =>
  h(
    "details",
    { class: "panel", "data-key": `panel ${title}`, ontoggle: ({ currentTarget: opened }) => begin(opened) },
    h("summary", {}, title),
    content,
  );

// On a phone the cursor would bring up the keys, which hide the form.
function begin(opened) {
  if (!opened.open || matchMedia("(pointer: coarse)").matches) return;
  const fields = [...opened.querySelectorAll("input, select, textarea")];
  const first = fields.find((each) => each.required && !each.value) ?? fields[0];
  first?.focus();
}

function values(made, fields) {
  const given = new FormData(made);
  return Object.fromEntries(fields.map((field) => [field.name, read(field, given)]));
}

const read = ({ name, type }, given) => (READ[type] ?? ((text) => text))(given.get(name) ?? "");

function labelled(field) {
  if (field.type === "checkbox") {
    return h(
      "label",
      { class: "check" },
      h("input", { type: "checkbox", name: field.name, checked: field.value }),
      h("span", {}, field.label),
      hint(field),
    );
  }
  return h("label", {}, h("span", {}, field.label), control(field), hint(field));
}

const hint = ({ hint: text }) => text && h("small", { class: "hint" }, text);

function control(field) {
  const { name, required, value = "", placeholder } = field;
  if (field.type === "select") {
    return h(
      "select",
      { name },
      field.options.map((option) => choice(option, value)),
    );
  }
  if (field.type === "table" || field.type === "textarea") return area(field);
  return completed(field, h("input", {
    name,
    required,
    value,
    placeholder,
    type: field.type ?? "text",
    // A name of blanks is an accident.
    pattern: required && !field.type ? ".*\\S.*" : null,
    title: required && !field.type ? "More than blanks" : null,
    min: field.min,
    max: field.max,
    autocomplete: field.type === "password" ? "new-password" : "off",
    autocapitalize: "none",
    spellcheck: "false",
    step: "any",
  }));
}

let lists = 0;

/** Offers names while one is typed: `complete` gets the text and the form, and returns a promise of names. */
function completed({ complete }, input) {
  if (!complete) return input;
  const id = `names-${(lists += 1)}`;
  const list = h("datalist", { id });
  input.setAttribute("list", id);
  const offer = async () => {
    const typed = input.value;
    const names = await complete(typed, input.form).catch(() => []);
    if (input.value === typed) list.replaceChildren(...names.map((name) => h("option", { value: name })));
  };
  for (const event of ["focus", "input"]) input.addEventListener(event, offer);
  return [input, list];
}

function choice(option, value) {
  const [given, label] = Array.isArray(option) ? option : [option, option];
  return h("option", { value: given, selected: given === value }, label);
}

function area({ name, required, value = "", placeholder, type, offers = [], rows = 3 }) {
  const text = h(
    "textarea",
    { name, required, rows, placeholder, spellcheck: "false", autocapitalize: "none" },
    value,
  );
  if (type !== "table" || !offers.length) return text;
  const offer = (each) =>
    h("button", { type: "button", class: "chip", onclick: () => offered(text, each) }, each);
  return [text, h("span", { class: "chips" }, offers.map(offer))];
}

function offered(text, name) {
  text.value += `${text.value && !text.value.endsWith("\n") ? "\n" : ""}${name} = `;
  text.focus();
}
