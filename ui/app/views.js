// Finds the view of a place by the first name in the link, and by how many names there are.
//
// A view's module is run when it is first wanted: the first view does not wait for the modules of all others. The node
// announces them in the page, in the order of this table, so that they are here, and of one version, before a click.

import { Failure } from "./api.js";

const VIEWS = {
  "overview/1": async () => (await import("./views/overview.js")).overview,
  "queues/1": async () => (await import("./views/queues.js")).queues,
  "queues/3": async () => (await import("./views/queue.js")).queue,
  "exchanges/1": async () => (await import("./views/exchanges.js")).exchanges,
  "exchanges/3": async () => (await import("./views/exchange.js")).exchange,
  "topology/1": async () => (await import("./views/topology.js")).topology,
  "streams/1": async () => (await import("./views/streams.js")).streams,
  "leases/1": async () => (await import("./views/leases.js")).leases,
  "transactions/1": async () => (await import("./views/branches.js")).branches,
  "connections/1": async () => (await import("./views/connections.js")).connections,
  "connections/2": async () => (await import("./views/connections.js")).connection,
  "channels/1": async () => (await import("./views/channels.js")).channels,
  "channels/2": async () => (await import("./views/channels.js")).channel,
  "consumers/1": async () => (await import("./views/consumers.js")).consumers,
  "policies/1": async () => (await import("./views/policies.js")).policies,
  "users/1": async () => (await import("./views/users.js")).users,
  "users/2": async () => (await import("./views/users.js")).user,
  "vhosts/1": async () => (await import("./views/hosts.js")).virtualHosts,
  "vhosts/2": async () => (await import("./views/hosts.js")).virtualHost,
  "definitions/1": async () => (await import("./views/definitions.js")).definitions,
  "alarms/1": async () => (await import("./views/alarms.js")).alarms,
  "log/1": async () => (await import("./views/log.js")).log,
  "shovels/1": async () => (await import("./views/shovels.js")).shovels,
  "federation/1": async () => (await import("./views/federation.js")).federation,
  "kept/3": async () => (await import("./views/kept.js")).kept,
  "kept/5": async () => (await import("./views/kept.js")).keptThing,
};

const loaded = {};

const keyOf = ({ names }) => `${names[0] ?? "overview"}/${Math.max(names.length, 1)}`;

/** Returns the view of a place if there is one and it has been loaded. */
export const viewAt = (at) => loaded[keyOf(at)];

/** Loads the view of a place; returns undefined if there is none. Throws Failure. */
export async function loadView(at) {
  const key = keyOf(at);
  try {
    return (loaded[key] ??= await VIEWS[key]?.());
  } catch (problem) {
    if (!(problem instanceof TypeError)) throw problem;
    // Some browsers ask no more for a module that has failed to come, until the page is loaded again.
    throw new Failure(0, "the node has not sent this view; should this stay, load the page again");
  }
}
