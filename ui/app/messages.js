// Messages as people read them, and the form that publishes one.

import { path, post } from "./api.js";
import { body } from "./bodies.js";
import { h } from "./dom.js";
import { form } from "./forms.js";
import { count, moment, octets, value } from "./format.js";
import { facts, table } from "./tables.js";

const YES = { true: "yes", false: "no" }; // else it is not told

/**
 * Messages as the API gives them: payload and payload_encoding, properties, routing_key. `mark` returns what stands above
 * a message, if anything.
 */
export function messages(found, none = "The queue has no message to show.", mark = () => null) {
  if (!found.length) return h("p", { class: "empty" }, none);
  return h(
    "ol",
    { class: "messages" },
    found.map((each, index) => message(each, index, mark)),
  );
}

function message(each, index, mark) {
  const { headers: all = {}, ...properties } = each.properties ?? {};
  const { "x-death": deaths, ...others } = all ?? {};
  const headers = Array.isArray(deaths) && deaths.length ? withoutEnds(others) : others;
  return h(
    "li",
    { class: "message", "data-key": `message ${index}` },
    mark(each),
    facts([
      ["Offset", Number.isFinite(each.offset) && String(each.offset)],
      ["Exchange", each.exchange === undefined ? null : each.exchange || "(default)"],
      ["Routing key", each.routing_key],
      ["Redelivered", !Number.isFinite(each.offset) && YES[each.redelivered]],
      ["Size", octets(each.payload_bytes)],
    ]),
    pairs("Properties", properties),
    pairs("Headers", headers),
    history(deaths),
    content(each),
  );
}

/** Returns headers without the first and the last death, which the history has. */
const withoutEnds = (headers) =>
  Object.fromEntries(Object.entries(headers).filter(([name]) => !/^x-(first|last)-death-/.test(name)));

/** Shows where a message was dead-lettered, the last place first (x-death). */
function history(deaths) {
  if (!Array.isArray(deaths) || !deaths.length) return null;
  if (!deaths.every((each) => each !== null && typeof each === "object")) return pairs("History", { "x-death": deaths });
  return [h("h3", {}, "Dead-lettered"), table(DEATHS, deaths, (each) => JSON.stringify(each))];
}

const DEATHS = [
  ["From queue", ({ queue }) => value(queue ?? "–")],
  ["Reason", ({ reason }) => value(reason ?? "–")],
  ["Times", ({ count: times }) => count(times), { number: true }],
  ["Published to", ({ exchange }) => value(exchange || "(default exchange)")],
  ["With key", ({ "routing-keys": keys }) => h("code", {}, [keys ?? []].flat().map(value).join(", "))],
  ["First at", ({ time }) => (Number.isFinite(time) ? moment(time * 1000) : value(time ?? "–"))],
];

function content(each) {
  const { kind, text, left } = body(each);
  const unsent = kind === "octets" ? 0 : each.payload_bytes - new TextEncoder().encode(each.payload).length;
  return [
    kind !== "text" && h("h3", {}, kind === "JSON" ? "Body, JSON" : "Body, bytes that are not text"),
    h("pre", { tabindex: "0", "aria-label": "Body", class: kind === "octets" ? "octets" : null }, text),
    left > 0 &&
      h(
        "p",
        { class: "hint" },
        `${count(left)} more ${kind === "octets" ? "bytes" : "characters"} are not shown.`,
      ),
    unsent > 0 && h("p", { class: "hint" }, `${octets(unsent)} more were not asked for.`),
  ];
}

function pairs(title, table) {
  const found = Object.entries(table ?? {});
  return found.length > 0 && [h("h3", {}, title), facts(found.map(([name, given]) => [name, value(given)]))];
}

/** Publish to an exchange; with `fixed` as routing key the form does not ask for one. */
export const publishing = (host, exchange, fixed = null) =>
  form(
    "Publish",
    [
      ...(fixed === null ? [{ name: "key", label: "Routing key" }] : []),
      { name: "payload", label: "Body", type: "textarea", rows: 5 },
      {
        name: "encoding",
        label: "The body is",
        type: "select",
        options: [
          ["string", "text"],
          ["base64", "base64"],
        ],
      },
      { name: "persistent", label: "Persistent", type: "checkbox", value: true },
      { name: "headers", label: "Headers", type: "table", hint: "One a line: name = value" },
      {
        name: "properties",
        label: "Properties",
        type: "table",
        hint: "One a line: name = value",
        offers: [
          "content_type",
          "content_encoding",
          "correlation_id",
          "reply_to",
          "expiration",
          "message_id",
          "type",
          "priority",
        ],
      },
    ],
    async ({ key = fixed, payload, encoding, persistent, headers, properties }) => {
      const sent = await post(path`exchanges/${host}/${exchange}/publish`, {
        routing_key: key,
        payload,
        payload_encoding: encoding,
        properties: { delivery_mode: persistent ? 2 : 1, ...texts(properties), headers },
      });
      return sent.routed ? "Published; it reached a queue" : "Published, but no queue took it";
    },
  );

// These are text in the protocol, also where they look like numbers.
const texts = (properties) =>
  Object.fromEntries(
    Object.entries(properties).map(([name, given]) => [name, name === "priority" ? given : String(given)]),
  );
