// What an exchange or a queue knows to drop duplicates, and forgetting it.

import { path, remove } from "../api.js";
import { h } from "../dom.js";
import { count, octets } from "../format.js";
import { attempt, confirmed } from "../notices.js";

// Facts about the ids, none if there are none. `kind` is exchanges or queues.
export const deduplication = ({ deduplication: known }, kind, host, name) =>
  known
    ? [
        ["Duplicates dropped", count(known.duplicates)],
        [
          "Ids known",
          h(
            "span",
            {},
            `${count(known.entries)}${known.size ? ` of ${count(known.size)}` : ""}, ${octets(known.memory)}, `,
            `header ${known.header} `,
            h("button", { type: "button", onclick: () => forget(kind, host, name) }, "Forget all"),
          ),
        ],
      ]
    : [];

async function forget(kind, host, name) {
  if (!(await confirmed(`Forget all ids of “${name}”? Duplicates of old messages are then delivered.`, "Forget"))) return;
  await attempt(
    () => remove(path`leveret/${kind}/${host}/${name}/deduplication`),
    `The ids of “${name}” are forgotten`,
  );
}
