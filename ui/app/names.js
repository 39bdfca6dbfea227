// Completes names of exchanges and queues, as the node has them.

import { get, query } from "./api.js";

const OFFERED = 20;

/** Returns what a field of a form needs as `complete`: `host` is the virtual host, or returns it from the form, and so may `kind`. */
export const namesOf =
  (kind, host) =>
  async (text, form) => {
    const vhost = typeof host === "function" ? host(form) : host;
    const what = typeof kind === "function" ? kind(form) : kind;
    if (!what) return [];
    const asked = { page: 1, page_size: OFFERED, name: text, columns: "name" };
    const found = await get(`${what}/${encodeURIComponent(vhost)}${query(asked)}`);
    return (found.items ?? found).map(({ name }) => name).filter(Boolean);
  };
