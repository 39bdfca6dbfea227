// Alarms of the node, and how near it is to them.

import { get } from "../api.js";
import { h } from "../dom.js";
import { duration, octets } from "../format.js";
import { has } from "../session.js";
import { facts, section } from "../tables.js";

export const alarms = {
  title: () => "Alarms",

  async load(_, signal) {
    const [status, nodes] = await Promise.all([
      get("leveret/status", signal),
      has("monitoring") ? get("nodes", signal) : [],
    ]);
    return { status, nodes };
  },

  draw: ({ status, nodes }) => [
    status.alarm
      ? h(
          "p",
          { class: "banner warning" },
          `Alarm: ${status.alarm}. Connections that publish are not read from until it is over; consumers go on.`,
        )
      : !status.warnings?.length && h("p", { class: "banner good" }, "No alarm is on."),
    status.warnings?.map((text) =>
      h("p", { class: "banner warning" }, `Alarm: ${text}. Publishers and consumers go on; each queue’s page says how many.`),
    ),
    section(
      "Node",
      facts([
        ["Name", status.name],
        ["Version", status.version],
        ["Up for", duration(status.uptime_s * 1000)],
        ["Storage", status.data_dir ? `${status.storage}: ${status.data_dir}` : status.storage],
      ]),
    ),
    nodes.map((node) =>
      section(
        `Limits of ${node.name}`,
        facts([
          ["Memory", told(node.mem_alarm, memoryOf(node))],
          [
            "Disk free",
            node.disk_free_limit > 0
              ? told(
                  node.disk_free_alarm,
                  `${octets(node.disk_free)}, at least ${octets(node.disk_free_limit)}`,
                )
              : "not watched: the node keeps nothing on disk, or has no limit",
          ],
        ]),
      ),
    ),
  ],
};

const memoryOf = ({ mem_used: used, mem_limit: limit }) =>
  limit > 0 ? `${octets(used)} of ${octets(limit)}` : `${octets(used)}, without a limit`;

const told = (alarm, text) => (alarm ? h("b", { class: "dropped" }, `Alarm: ${text}`) : text);
