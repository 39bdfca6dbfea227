// Makes elements from plain calls, and an old tree equal to a new one without disturbing the reader.
//
//     h("p", {class: "hint"}, "There are ", 3)      an element; whatever is given as a child is text, never markup
//     morph(old, fresh)                             old looks like fresh; focus, scrolling, typed text stay
//
// A view draws itself anew every few seconds; `morph` changes only what differs. Elements with the same `data-key`
// are the same thing. Elements with `data-keep` (forms) are left alone once they are in the page. Handlers find elements
// from `event.currentTarget`: those drawn together with them may have been only a pattern, and not be in the page.

const SVG = "http://www.w3.org/2000/svg";

export const h = (name, attributes, ...children) =>
  filled(document.createElement(name), attributes, children);

export const s = (name, attributes, ...children) =>
  filled(document.createElementNS(SVG, name), attributes, children);

function filled(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes ?? {})) set(element, name, value);
  for (const child of children.flat(Infinity)) {
    if (child !== null && child !== undefined && child !== false) element.append(child);
  }
  return element;
}

function set(element, name, value) {
  if (name.startsWith("on")) listen(element, { [name.slice(2)]: value });
  else if (value === true) element.setAttribute(name, "");
  else if (value !== false && value !== null && value !== undefined) element.setAttribute(name, value);
}

// One listener for each kind of event looks up what to do, so that a later drawing can hand over its functions.
function listen(element, handlers) {
  element.handlers ??= {};
  for (const [type, handler] of Object.entries(handlers)) {
    if (!(type in element.handlers)) element.addEventListener(type, handled);
    element.handlers[type] = handler;
  }
}

function handled(event) {
  return event.currentTarget.handlers[event.type]?.call(event.currentTarget, event);
}

export function morph(old, fresh) {
  const focused = document.activeElement;
  const now = morphed(old, fresh);
  if (focused !== document.activeElement && focused?.isConnected) focused.focus({ preventScroll: true });
  return now;
}

function morphed(old, fresh) {
  if (!alike(old, fresh)) {
    old.replaceWith(fresh);
    return fresh;
  }
  if (old.nodeType !== Node.ELEMENT_NODE) {
    if (old.data !== fresh.data) old.data = fresh.data;
    return old;
  }
  if (old.hasAttribute("data-keep") || fresh.hasAttribute("data-keep")) return old;
  morphAttributes(old, fresh);
  listen(old, Object.fromEntries(Object.keys(old.handlers ?? {}).map((type) => [type, undefined])));
  listen(old, fresh.handlers ?? {});
  morphChildren(old, fresh);
  return old;
}

const keyOf = (node) => (node.nodeType === Node.ELEMENT_NODE ? node.getAttribute("data-key") : null);

const alike = (old, fresh) =>
  old.nodeType === fresh.nodeType && old.nodeName === fresh.nodeName && keyOf(old) === keyOf(fresh);

// Details that the reader has opened stay open.
const isReaders = (element, name) =>
  name === "open" && (element.tagName === "DETAILS" || element.tagName === "DIALOG");

function morphAttributes(old, fresh) {
  for (const { name } of [...old.attributes]) {
    if (!fresh.hasAttribute(name) && !isReaders(old, name)) old.removeAttribute(name);
  }
  if (old.type === "checkbox") old.checked = fresh.hasAttribute("checked"); // whatever was clicked since
  for (const { name, value } of fresh.attributes) {
    if (old.getAttribute(name) !== value && !isReaders(old, name)) old.setAttribute(name, value);
  }
}

function morphChildren(old, fresh) {
  const keyed = new Map();
  for (const child of old.children) if (keyOf(child) !== null) keyed.set(keyOf(child), child);
  let at = old.firstChild;
  for (const next of [...fresh.childNodes]) {
    const match = keyOf(next) === null ? (at && alike(at, next) ? at : null) : keyed.get(keyOf(next));
    if (!match || !alike(match, next)) {
      old.insertBefore(next, at);
      continue;
    }
    keyed.delete(keyOf(next));
    if (match === at) at = at.nextSibling;
    else old.insertBefore(match, at);
    morphed(match, next);
  }
  while (at) {
    const gone = at;
    at = at.nextSibling;
    gone.remove();
  }
}
