// Branches of distributed transactions, and deciding those whose coordinator does not come back.

import { get, path, post, remove } from "../api.js";
import { h } from "../dom.js";
import { everywhere, missed } from "../everywhere.js";
import { count, octets } from "../format.js";
import { attempt, confirmed } from "../notices.js";
import { badge, hostColumn, section, table } from "../tables.js";

const DECISIONS = {
  commit: {
    verb: "Commit",
    more: "What it publishes reaches its queues, and what it accepts is gone, whatever its coordinator says later.",
    done: "The branch is committed",
  },
  rollback: {
    verb: "Roll back",
    more: "What it publishes is dropped, and what it accepts is back in its queues, whatever its coordinator says later.",
    done: "The branch is rolled back",
  },
};

export const branches = {
  title: () => "Transactions",

  load: (_, signal) => everywhere((vhost) => get(path`leveret/branches/${vhost}`, signal)),

  draw: (asked, _, found = asked.found.flatMap(([vhost, some]) => some.map((each) => ({ ...each, vhost })))) => [
    h(
      "p",
      { class: "hint" },
      "A prepared branch waits for its coordinator without end. Decide in its place only if it does not come back.",
    ),
    missed(asked),
    section(
      "Branches of distributed transactions",
      found.length
        ? table(columns(), found, ({ vhost, xid }) => JSON.stringify([vhost, xid]))
        : h("p", { class: "empty" }, "There are none that you may decide about."),
    ),
  ],
};

const columns = () => [
  ["Branch", ({ xid }) => h("code", {}, xid)],
  ...hostColumn(),
  ["User", ({ user }) => user],
  ["State", ({ state }) => badge(state, state === "prepared" || state === "heuristic" ? "warning" : "")],
  ["Outcome", ({ state, verdict }) => (state === "heuristic" ? verdict : "–")],
  ["Accepts", ({ accepted }) => count(accepted), { number: true }],
  ["Publishes", ({ published }) => count(published), { number: true }],
  ["Size", (each) => octets(each.octets), { number: true }],
  ["", actions],
];

const button = (text, onclick) => h("button", { type: "button", onclick }, text);

/** An active branch ends with its sessions; a decided one is kept until its coordinator has heard of it. */
function actions({ vhost, xid, state }) {
  if (state === "prepared")
    return h(
      "div",
      { class: "row" },
      Object.keys(DECISIONS).map((decision) =>
        button(DECISIONS[decision].verb, () => decide(vhost, xid, decision)),
      ),
    );
  return state === "heuristic" && button("Forget", () => forget(vhost, xid));
}

async function decide(vhost, xid, decision) {
  const { verb, more, done } = DECISIONS[decision];
  if (!(await confirmed(`${verb} branch “${xid}”?`, verb, more))) return;
  await attempt(() => post(path`leveret/branches/${vhost}/${xid}/` + decision), done);
  document.dispatchEvent(new Event("leveret:changed"));
}

async function forget(vhost, xid) {
  const more = "Its coordinator is not told any more how it ended.";
  if (!(await confirmed(`Forget branch “${xid}”?`, "Forget", more))) return;
  await attempt(() => remove(path`leveret/branches/${vhost}/${xid}`), "The branch is forgotten");
  document.dispatchEvent(new Event("leveret:changed"));
}
