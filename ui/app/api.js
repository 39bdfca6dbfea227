// The node's HTTP API: requests with the credentials of this tab, and failures in words.
//
// Credentials are kept in the tab's session storage, so that a reload does not ask again and another tab does. They are
// sent in the Authorization header only; the browser's own login, cookies and caches are left out.

import { endOf } from "./tokens.js";

const STORED = "leveret.login";
const BEARER = "Bearer ";
const READING_MS = 15_000; // the longest that an answer may take
const CHANGING_MS = 120_000; // millions of messages may have to be moved or dropped

let login = sessionStorage.getItem(STORED);
let logouts = 0;

/** Thrown when the node refuses a request, with its reason. `status` is 0 if it did not answer. */
export class Failure extends Error {
  constructor(status, reason) {
    super(reason);
    this.status = status;
  }
}

let renew = () => null;

/** From now on, call `renewal` before each request: it returns a promise if the credentials are to be renewed first. */
export function renewBy(renewal) {
  renew = renewal;
}

export const isLoggedIn = () => login !== null;

export function logIn(name, password) {
  const octets = new TextEncoder().encode(`${name}:${password}`);
  login = `Basic ${btoa(Array.from(octets, (each) => String.fromCharCode(each)).join(""))}`;
}

/** Throws Failure if the credentials do not fit into a header. */
export function logInWith(token) {
  if (!/^[\x21-\x7e]+$/.test(token))
    throw new Failure(401, "a token is one word of letters, digits and signs");
  login = BEARER + token;
}

export const isByToken = () => Boolean(login?.startsWith(BEARER));

/** Returns when the token of this login expires, in milliseconds since 1970; null if unknown, or it is a password. */
export const endsAt = () => (isByToken() ? endOf(login.slice(BEARER.length)) : null);

/** Keeps credentials that the node has accepted. */
export const remember = () => sessionStorage.setItem(STORED, login);

export function logOut() {
  login = null;
  logouts += 1;
  sessionStorage.removeItem(STORED);
}

/** Returns a path of names: each is percent-encoded, so that a `/` in a name stays in it. */
export const path = (strings, ...names) => String.raw({ raw: strings }, ...names.map(encodeURIComponent));

export const get = (where, signal) => ask("GET", where, undefined, {}, signal);
export const put = (where, body) => ask("PUT", where, body ?? {});
export const post = (where, body) => ask("POST", where, body ?? {});
export const remove = (where, headers) => ask("DELETE", where, undefined, headers);

async function ask(method, where, body, headers = {}, signal = undefined) {
  const before = logouts;
  await renew();
  if (logouts !== before) throw new Failure(401, "the user that asked for this has logged out");
  const request = {
    method,
    headers: { ...headers, Authorization: login ?? "", Accept: "application/json", ...typed(body) },
    body: body === undefined ? undefined : JSON.stringify(body),
    credentials: "omit",
    cache: "no-store",
  };
  const [response, text] = await answered(where, request, signal);
  const content = parsed(text);
  if (!response.ok) throw new Failure(statusOf(response), reasonOf(content, response, where));
  return content;
}

// RabbitMQ's API also answers 401 to a user without permission; only a challenge means another login.
const statusOf = ({ status, headers }) => (status === 401 && !headers.has("WWW-Authenticate") ? 403 : status);

const typed = (body) => (body === undefined ? {} : { "Content-Type": "application/json" });

/** Returns the response with its text. Throws Failure if the node does not answer in time, and AbortError if it need not. */
async function answered(where, request, signal) {
  const isReading = request.method === "GET";
  const limit = isReading ? READING_MS : CHANGING_MS;
  const waiting = new AbortController();
  const giveUp = () => waiting.abort();
  const timer = setTimeout(giveUp, limit);
  if (signal?.aborted) giveUp();
  signal?.addEventListener("abort", giveUp);
  try {
    const response = await fetch(`api/${where}`, { ...request, signal: waiting.signal });
    return [response, await response.text()];
  } catch (problem) {
    if (signal?.aborted) throw problem;
    if (!waiting.signal.aborted) throw new Failure(0, "the node does not answer");
    const unknown = isReading ? "" : "; whether it has done this is not known";
    throw new Failure(0, `the node has not answered for ${limit / 1000} s${unknown}`);
  } finally {
    clearTimeout(timer);
    signal?.removeEventListener("abort", giveUp);
  }
}

function parsed(text) {
  try {
    return text ? JSON.parse(text) : null;
  } catch {
    return null;
  }
}

function reasonOf(content, response, where) {
  const reason = content?.reason ?? content?.error;
  // RabbitMQ's reasons do not name the thing.
  if (reason === "Not Found" || reason === "vhost_or_user_not_found") return missing(where) ?? reason;
  if (Array.isArray(reason)) return reason.map(String).join(": ");
  return typeof reason === "string" ? reason : `the node answers ${response.status} ${response.statusText}`;
}

const THINGS = { queues: "queue", exchanges: "exchange", policies: "policy", "operator-policies": "policy" };

/** Describes the thing in a path that does not exist. */
export function missing(where) {
  const [kind, ...names] = where.replace(/\?.*/, "").split("/").map(decodeURIComponent);
  const [first, second] = names;
  if (kind === "bindings" && names.length > 4)
    return `there is no exchange “${names[2]}” or no “${names[4]}” in virtual host “${first}”`;
  if (kind === "permissions" || kind === "topic-permissions")
    return `there is no user “${second}” or no virtual host “${first}”`;
  if (THINGS[kind] && names.length > 1)
    return `there is no ${THINGS[kind]} “${second}”, or no virtual host “${first}”`;
  if (kind === "users" || kind === "user-limits") return `there is no user “${first}”`;
  if (kind === "connections" || kind === "channels") return `there is no ${kind.slice(0, -1)} “${first}”`;
  if (first !== undefined) return `there is no virtual host “${first}”`;
  return null;
}

/** Returns a query string of the values that are given; empty without any. */
export function query(values) {
  const given = Object.entries(values).filter(
    ([, value]) => value !== undefined && value !== null && value !== "",
  );
  return given.length ? `?${new URLSearchParams(given)}` : "";
}
