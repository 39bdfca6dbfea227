// The user that has logged in, their tags, and the virtual host that they look at.

const CHOSEN = "leveret.host";

let user = null;

export const whoever = () => user;

export function entered(found) {
  user = found;
}

/** Returns whether the user has one of these tags, or is an administrator. */
export const has = (...tags) =>
  tags.some((tag) => user?.tags.includes(tag)) || Boolean(user?.tags.includes("administrator"));

export const isLetIn = (tags) =>
  ["management", "policymaker", "monitoring", "administrator"].some((tag) => tags.includes(tag));

/** RabbitMQ returns tags as a list since 3.9, and as text before. */
export const tagsOf = ({ tags }) =>
  Array.isArray(tags)
    ? tags
    : String(tags ?? "")
        .split(",")
        .map((tag) => tag.trim())
        .filter(Boolean);

/** The virtual host whose things are listed; all of them if empty. */
export const host = () => sessionStorage.getItem(CHOSEN) ?? "";

let known = [];

/** The virtual hosts that the user may look at. */
export const hosts = () => known;

export function found(names) {
  known = names;
  if (!known.includes(host())) choose("");
}

/** Returns the virtual host for a form: the chosen one, else `/`, else the first. */
export const oneHost = () => host() || (known.includes("/") ? "/" : (known[0] ?? "/"));

export const choose = (name) => sessionStorage.setItem(CHOSEN, name);
