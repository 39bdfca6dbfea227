// Rows that the reader picks in a list, and what is done with all of them. A pick outlives refreshes and pages.
//
//     const picked = picking(({vhost, name}) => ...)     a column of boxes, and a bar of actions while there are picks

import { h } from "./dom.js";
import { notice } from "./notices.js";
import { unseen } from "./tables.js";

const AT_ONCE = 4; // requests

/** `keyOf` returns the text by which a row is known; `nameOf` what the reader calls it. */
export function picking(keyOf, nameOf) {
  const rows = new Map();

  const changed = () => document.dispatchEvent(new Event("leveret:redraw"));
  const toggle = (row, on) => {
    if (on) rows.set(keyOf(row), row);
    else rows.delete(keyOf(row));
    changed();
  };

  return {
    rows: () => [...rows.values()],
    clear: () => {
      rows.clear();
      changed();
    },

    /** Returns the box of a row; the row as it is now takes the place of the one that was picked. */
    box(row) {
      if (rows.has(keyOf(row))) rows.set(keyOf(row), row);
      return h("input", {
        type: "checkbox",
        class: "pick",
        "aria-label": `Select ${nameOf(row)}`,
        checked: rows.has(keyOf(row)),
        onchange: (event) => toggle(row, event.currentTarget.checked),
      });
    },

    /** Returns the box of all rows that are shown. */
    all(shown) {
      return [
        unseen("Select"),
        h("input", {
          type: "checkbox",
          class: "pick",
          "aria-label": "Select all of this page",
          checked: shown.length > 0 && shown.every((row) => rows.has(keyOf(row))),
          onchange: (event) => {
            const on = event.currentTarget.checked;
            for (const row of shown) {
              if (on) rows.set(keyOf(row), row);
              else rows.delete(keyOf(row));
            }
            changed();
          },
        }),
      ];
    },
  };
}

/** Does it for each row, some at a time, and tells how many succeeded and why others did not. */
export async function forEach(rows, action, told) {
  const failures = [];
  const waiting = [...rows];
  const work = async () => {
    for (let row = waiting.shift(); row; row = waiting.shift()) {
      try {
        await action(row);
      } catch (problem) {
        failures.push(problem.message);
      }
    }
  };
  await Promise.all(Array.from({ length: AT_ONCE }, work));
  const done = rows.length - failures.length;
  if (done) notice(told(done));
  if (failures.length) notice(`${failures.length} of ${rows.length} refused: ${failures[0]}`, "failed");
}
