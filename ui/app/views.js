// Finds the view of a place by the first name in the link, and by how many names there are.

import { alarms } from "./views/alarms.js";
import { branches } from "./views/branches.js";
import { channel, channels } from "./views/channels.js";
import { connection, connections } from "./views/connections.js";
import { consumers } from "./views/consumers.js";
import { definitions } from "./views/definitions.js";
import { exchange } from "./views/exchange.js";
import { exchanges } from "./views/exchanges.js";
import { federation } from "./views/federation.js";
import { virtualHost, virtualHosts } from "./views/hosts.js";
import { kept, keptThing } from "./views/kept.js";
import { leases } from "./views/leases.js";
import { log } from "./views/log.js";
import { overview } from "./views/overview.js";
import { policies } from "./views/policies.js";
import { queue } from "./views/queue.js";
import { queues } from "./views/queues.js";
import { shovels } from "./views/shovels.js";
import { streams } from "./views/streams.js";
import { topology } from "./views/topology.js";
import { user, users } from "./views/users.js";

export const VIEWS = {
  "overview/1": overview,
  "queues/1": queues,
  "queues/3": queue,
  "exchanges/1": exchanges,
  "exchanges/3": exchange,
  "topology/1": topology,
  "streams/1": streams,
  "leases/1": leases,
  "transactions/1": branches,
  "connections/1": connections,
  "connections/2": connection,
  "channels/1": channels,
  "channels/2": channel,
  "consumers/1": consumers,
  "policies/1": policies,
  "users/1": users,
  "users/2": user,
  "vhosts/1": virtualHosts,
  "vhosts/2": virtualHost,
  "definitions/1": definitions,
  "alarms/1": alarms,
  "log/1": log,
  "shovels/1": shovels,
  "federation/1": federation,
  "kept/3": kept,
  "kept/5": keptThing,
};
