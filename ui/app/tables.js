// Tables, and lists of which the node gives a page at a time, sorted and searched by the node.
//
// The reader's choices are in the link (`#/queues?page=2&sort=messages`), which can be kept, sent, and gone back to.

import { get, query } from "./api.js";
import { h } from "./dom.js";
import { count } from "./format.js";
import { link, place } from "./routes.js";
import { host } from "./session.js";

const PAGE = 50;
const SEARCH_AFTER_MS = 250;
const OWN = ["page", "page_size", "sort", "sort_reverse", "name"];

/** Loads the page of a list that the link asks for. */
export async function page(where, chosen, more = {}, signal = undefined) {
  const asked = Object.fromEntries(OWN.filter((name) => chosen[name]).map((name) => [name, chosen[name]]));
  const found = await get(where + query({ page: 1, page_size: PAGE, ...asked, ...more }), signal);
  // Some lists are answered without pages while they are empty.
  return Array.isArray(found)
    ? { items: found, page: 1, page_count: 1, filtered_count: found.length, total_count: found.length }
    : found;
}

/** A column: [heading, row => content, {sort: the API's name to sort by, number: right-aligned, box: of check boxes}]. */
export function table(columns, rows, keyOf, at = null) {
  return h(
    "div",
    { class: "scroll", tabindex: "0", role: "group", "aria-label": "Table" },
    h(
      "table",
      {},
      h(
        "thead",
        {},
        h(
          "tr",
          {},
          columns.map((column) => heading(column, at)),
        ),
      ),
      h(
        "tbody",
        {},
        rows.map((row) =>
          h(
            "tr",
            { "data-key": keyOf(row) },
            columns.map((column) => cell(column, row)),
          ),
        ),
      ),
    ),
  );
}

function heading([title, , { sort, number, box } = {}], at) {
  const aligned = number ? "number" : box ? "box" : null;
  if (!sort || !at) return h("th", { scope: "col", class: aligned }, title || unseen("Actions"));
  const sorted = at.query.sort === sort;
  const reverse = sorted ? at.query.sort_reverse !== "true" : Boolean(number);
  const order = at.query.sort_reverse === "true" ? "descending" : "ascending";
  const to = link(at.names, { ...at.query, page: 1, sort, sort_reverse: reverse });
  return h(
    "th",
    { scope: "col", class: aligned, "aria-sort": sorted ? order : null },
    h("a", { href: to }, title),
  );
}

/** Text for those who do not see the page. */
export const unseen = (text) => h("span", { class: "unseen" }, text);

/** The column with the virtual host, in a list of several. */
export const hostColumn = (isSorted = true) =>
  host() ? [] : [["Virtual host", ({ vhost }) => vhost, isSorted ? { sort: "vhost" } : {}]];

const cell = ([title, content, { number, box } = {}], row) =>
  h("td", { class: number ? "number" : box ? "box" : null, "data-label": box ? null : title }, content(row));

/**
 * A page of a list, with its search and links to other pages. `what` names the things in the plural; `bar` stands between
 * the search and the list.
 */
export function list(what, columns, found, keyOf, at, bar = null) {
  return [
    h("div", { class: "row tools" }, search(what, at), summary(what, found)),
    bar,
    found.items.length
      ? table(columns, found.items, keyOf, at)
      : h("p", { class: "empty" }, nothing(what, at)),
    pager(found, at),
  ];
}

const nothing = (what, at) =>
  at.query.name ? `No ${what} have “${at.query.name}” in their names.` : `There are no ${what}.`;

function summary(what, { filtered_count: shown, total_count: all }) {
  const named = all === 1 ? what.replace(/s$/, "") : what;
  const told = shown === all ? `${count(all)} ${named}` : `${count(shown)} of ${count(all)} ${named}`;
  return h("p", { class: "hint" }, told);
}

let typing = null;

function search(what, at) {
  return h("input", {
    type: "search",
    class: "search",
    placeholder: `Search ${what}`,
    "aria-label": `Search ${what}`,
    value: at.query.name ?? "",
    "data-key": `search ${what}`,
    spellcheck: "false",
    autocapitalize: "none",
    oninput: (event) => searched(event.currentTarget),
  });
}

function searched(input) {
  clearTimeout(typing);
  const before = location.hash;
  typing = setTimeout(() => {
    if (location.hash !== before) return;
    const { names, query: chosen } = place(before);
    location.replace(link(names, { ...chosen, name: input.value, page: 1 }));
  }, SEARCH_AFTER_MS);
}

/** Links to other pages; where a view has several lists, `name` is the parameter of this one. */
export function pager({ page: shown, page_count: last }, at, name = "page") {
  if (!(last > 1)) return null;
  const to = (number, label, text) =>
    number < 1 || number > last || number === shown
      ? h("span", { class: "button off", "aria-disabled": "true" }, text)
      : h(
          "a",
          { class: "button", href: link(at.names, { ...at.query, [name]: number }), "aria-label": label },
          text,
        );
  return h(
    "nav",
    { class: "row pager", "aria-label": name === "page" ? "Pages" : `Pages: ${name}` },
    to(1, "First page", "«"),
    to(shown - 1, "Previous page", "‹"),
    h("span", {}, `Page ${shown} of ${last}`),
    to(shown + 1, "Next page", "›"),
    to(last, "Last page", "»"),
  );
}

/** A list of names and their values. */
export const facts = (pairs) =>
  h(
    "dl",
    { class: "facts" },
    pairs
      .filter(([, value]) => value !== undefined && value !== null && value !== false)
      .map(([name, value]) => h("div", {}, h("dt", {}, name), h("dd", {}, value === "" ? "–" : value))),
  );

export const section = (title, ...content) =>
  h("section", { class: "card", "data-key": `section ${title}` }, h("h2", {}, title), content);

export const badge = (text, kind = "") => h("span", { class: `badge ${kind}` }, text);
