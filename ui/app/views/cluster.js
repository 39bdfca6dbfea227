// The nodes of a cluster, the database's replication, and the last takeovers: a part of the overview.

import { moment, octets } from "../format.js";
import { badge, facts, section, table } from "../tables.js";

/** Returns the sections about a cluster; none for a node that is alone. */
export const cluster = (found) =>
  !found || found.state === "single" ? [] : [nodes(found), replication(found), takeovers(found)];

const nodes = (found) =>
  section(
    `Cluster ${found.name}`,
    facts([
      ["Epoch", String(found.epoch)],
      ["Lease", `${found.lease_ttl_s} s, last renewed ${found.lease_age_s.toFixed(1)} s ago`],
    ]),
    table(
      [
        ["Node", ({ name }) => name],
        ["State", ({ state }) => badge(state, state === "serving" ? "good" : state === "suspended" ? "failed" : "")],
        ["At", ({ host }) => host || "–"],
        ["Since", ({ since }) => moment(since && since * 1000)],
      ],
      [
        { name: found.owner, state: found.state, host: found.address },
        ...found.standby.filter(({ name }) => name !== found.owner).map((each) => ({ ...each, state: "standby" })),
      ],
      ({ name }) => name,
    ),
  );

const replication = ({ replication: standbys }) =>
  standbys.length > 0 &&
  section(
    "Standbys of the database",
    table(
      [
        ["Name", ({ name }) => name],
        ["Replication", ({ sync_state: kind }) => badge(kind, kind === "sync" || kind === "quorum" ? "good" : "warning")],
        ["Behind", ({ behind }) => octets(behind ?? 0), { number: true }],
      ],
      standbys,
      ({ name }) => name,
    ),
  );

const takeovers = ({ takeovers: last }) =>
  last.length > 0 &&
  section(
    "Takeovers",
    table(
      [
        ["Epoch", ({ epoch }) => String(epoch), { number: true }],
        ["Node", ({ node }) => node],
        ["When", ({ at }) => moment(at * 1000)],
        ["Took", ({ took_s: seconds }) => `${seconds.toFixed(2)} s`, { number: true }],
        ["Because", ({ why }) => why],
      ],
      last,
      ({ epoch }) => String(epoch),
    ),
  );
