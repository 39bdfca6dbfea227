// Asks for what the API tells of one virtual host at a time: of the chosen one, or of all that the user may look at.

import { Failure } from "./api.js";
import { h } from "./dom.js";
import { host, hosts } from "./session.js";

const ASKED = 40; // virtual hosts, if each takes a request

export const chosenHosts = () => (host() ? [host()] : hosts());

/**
 * Asks of `most` virtual hosts at most. Returns {found: [[virtual host, answer], ...], refused: [names], left: how many
 * were not asked}.
 */
export async function everywhere(load, most = ASKED) {
  const asked = chosenHosts().slice(0, most);
  const answers = await Promise.all(asked.map((vhost) => load(vhost).catch(refusal)));
  return {
    found: asked.map((vhost, index) => [vhost, answers[index]]).filter(([, answer]) => answer !== null),
    refused: asked.filter((_, index) => answers[index] === null),
    left: chosenHosts().length - asked.length,
  };
}

// Where only one is looked at, a refusal is all there is to tell. A virtual host may also be gone since it was listed.
function refusal(problem) {
  if (!host() && problem instanceof Failure && [401, 403, 404].includes(problem.status)) return null;
  throw problem;
}

/** Tells in a line what is missing in an answer. */
export function missed({ refused, left }) {
  const told = [
    refused.length > 0 && `Not of ${refused.join(", ")}, where this user may not enter. `,
    left > 0 && `${left} more virtual hosts are not asked: choose one above. `,
  ].filter(Boolean);
  return told.length > 0 && h("p", { class: "hint" }, told);
}
