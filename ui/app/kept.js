// The lists of what protocols keep besides queues and messages, as the node names them.

import { get } from "./api.js";
import { has } from "./session.js";

let known = [];

export const lists = () => known;

export const listAt = (protocol, name) =>
  known.find((each) => each.protocol === protocol && each.list === name);

/** Asks the node for the lists, for users that may see them. */
export async function listsAgain() {
  known = has("monitoring") ? await get("leveret/kept").catch(() => []) : [];
}
