// The page: logs the user in, and draws the view of the current link anew every few seconds.
//
//     hash ──place──> a view ──load──> answers of the node ──draw──> elements ──morph──> what the reader sees
//
// A view is {title(at), load(at, signal), draw(found, at)}. What is shown stays until the next answer, also while the
// node does not answer; the banner tells that.

import * as api from "./api.js";
import { h, morph } from "./dom.js";
import { listenForSlash, openNamed, taken } from "./finding.js";
import { clock } from "./format.js";
import { listsAgain } from "./kept.js";
import { leave } from "./notices.js";
import * as openid from "./openid.js";
import { link, place } from "./routes.js";
import * as session from "./session.js";
import { shell } from "./shell.js";
import { applyTheme } from "./theme.js";
import { loadView, viewAt } from "./views.js";
import { login } from "./views/login.js";

const REFRESH_MS = 5000;
const SLOW_MS = 3000; // an answer that takes longer makes the node slow
const TICK_MS = 1000;
const RESIZED_MS = 150;

const state = {
  at: place(location.hash),
  problem: "", // why nothing newer is shown
  unreachable: false, // the node does not answer at all
  slow: false, // the node has not answered yet, and should have
  answeredAt: null, // when what is shown was answered, in milliseconds since 1970
  status: null, // the node's, as last loaded
  drawn: null, // what the view was last drawn from
  asking: new AbortController(),
  refreshed: null, // a promise: the last refresh that has begun
  timer: 0,
};

const app = document.getElementById("app");

function put(fresh) {
  if (app.firstElementChild) morph(app.firstElementChild, fresh);
  else app.replaceChildren(fresh);
}

function shown(content) {
  put(shell(state, content));
}

function showLogin(reason = "") {
  leave();
  clearTimeout(state.timer);
  state.asking.abort();
  const byToken = api.isByToken();
  api.logOut();
  openid.forget();
  session.entered(null);
  document.title = "Leveret";
  put(login(reason, enter, byToken));
  app.querySelector("fieldset:enabled input").focus();
}

/** Logs in with credentials. Throws Failure. */
async function enter({ name, password, token }) {
  if (token === undefined) api.logIn(name, password);
  else api.logInWith(token.trim());
  await admit();
  api.remember();
  await arrive();
}

function inWords(problem) {
  if (problem.status !== 403) throw problem;
  throw new api.Failure(403, "This user has no tag that allows a login, such as management.");
}

async function admit() {
  const user = await api.get("whoami").catch(inWords);
  user.tags = session.tagsOf(user);
  if (!session.isLetIn(user.tags)) {
    throw new api.Failure(403, `user “${user.name}” has no tag that allows a login, such as management`);
  }
  session.entered(user);
}

async function arrive() {
  await Promise.all([hostsAgain(), listsAgain()]);
  app.replaceChildren();
  await go();
}

async function hostsAgain() {
  const found = await api.get("vhosts?page=1&page_size=200&columns=name").catch(() => []);
  session.found((found.items ?? found).map(({ name }) => name));
}

/** Shows the view of the link. */
async function go() {
  const before = JSON.stringify(state.at.names);
  state.at = place(location.hash);
  const title = taken(state.at);
  if (before !== JSON.stringify(state.at.names)) leave();
  await refresh();
  if (!session.whoever()) return; // logged out meanwhile
  if (before !== JSON.stringify(state.at.names)) {
    hostsAgain(); // there may be others; the next drawing shows them
    scrollTo(0, 0);
    document.getElementById("main")?.focus({ preventScroll: true });
  }
  if (title) openNamed(title);
}

/** Loads what the view shows, and the state of the node. Waits until this, or what has begun since, is shown. */
function refresh() {
  state.refreshed = loaded();
  return state.refreshed;
}

async function loaded() {
  clearTimeout(state.timer);
  state.asking.abort();
  const asking = new AbortController();
  state.asking = asking;
  const begun = Date.now();
  const ticking = setInterval(() => {
    if (asking.signal.aborted) clearInterval(ticking);
    else wait(Date.now() - begun);
  }, TICK_MS);
  try {
    await draw(asking.signal);
  } catch (problem) {
    if (!asking.signal.aborted) failed(problem);
  } finally {
    clearInterval(ticking);
  }
  if (!asking.signal.aborted) state.timer = setTimeout(again, REFRESH_MS);
  else if (state.asking !== asking) await state.refreshed; // else the user has logged out
}

/** Shows that the node has not answered for so long, and how old the figures are. */
function wait(ms) {
  state.slow = ms >= SLOW_MS;
  if (isShown()) {
    if (state.slow || state.problem) shown(kept());
  } else {
    const title = viewAt(state.at)?.title(state.at);
    if (title === undefined) return;
    document.title = `${title} · Leveret`;
    shown(main(state.at, title, h("p", { class: "empty" }, "Waiting for the node.")));
  }
}

/** Returns whether the view of the link is on the page. */
const isShown = () => document.getElementById("main")?.dataset.key === JSON.stringify(state.at.names);

async function draw(signal) {
  const { at } = state;
  const view = viewAt(at) ?? (await loadView(at));
  if (!view) {
    shown(missing());
    return;
  }
  const [found, status] = await Promise.all([view.load(at, signal), api.get("leveret/status", signal)]);
  if (signal.aborted) return;
  Object.assign(state, { problem: "", unreachable: false, slow: false, status, answeredAt: Date.now() });
  document.title = `${view.title(at)} · Leveret`;
  state.drawn = { at, found };
  shown(main(at, view.title(at), view.draw(found, at)));
}

/** Draws what was loaded last once more, after a choice of the reader's. */
function redraw() {
  const { at, found } = state.drawn ?? {};
  if (at !== state.at) return;
  shown(main(at, viewAt(at).title(at), viewAt(at).draw(found, at)));
}

/** Keeps what is shown. */
const kept = () => {
  const { key } = document.getElementById("main").dataset;
  return h("main", { "data-key": key, "data-keep": true });
};

const main = ({ names }, title, content) =>
  h("main", { id: "main", tabindex: "-1", "data-key": JSON.stringify(names) }, h("h1", {}, title), content);

const missing = () =>
  main(
    { names: ["missing"] },
    "Nothing here",
    h("p", {}, "This link leads nowhere. ", h("a", { href: link([]) }, "To the overview")),
  );

function failed(problem) {
  if (problem.status === 401) {
    showLogin(whyOut(problem));
    return;
  }
  if (!(problem instanceof api.Failure)) console.error(problem);
  state.problem = problem.message;
  state.unreachable = problem.status === 0;
  state.slow = false;
  // What is shown may be old, and is still the best there is, unless the thing itself is gone.
  if (isShown() && problem.status !== 404) shown(kept());
  else showFailure(problem);
}

function whyOut(problem) {
  if (!api.isByToken()) return problem.message;
  const end = api.endsAt();
  if (end !== null && end <= Date.now())
    return `Your token has run out, at ${clock(end)}. Log in with a new one.`;
  return "The node does not take your token any more. Log in with another one.";
}

function showFailure(problem) {
  const title = viewAt(state.at)?.title(state.at) ?? "Leveret"; // the view may be what the node has not sent
  document.title = `${title} · Leveret`;
  const reason =
    problem.status === 404 ? `The node knows nothing of it: ${problem.message}.` : problem.message;
  if (problem.status === 404 || problem.status === 403) state.problem = ""; // it is shown in the view instead
  shown(main(state.at, title, h("p", { class: "empty" }, reason)));
}

function again() {
  if (document.hidden) return; // `visibilitychange` goes on
  refresh();
}

/** Goes on where the issuer has sent the user back. */
async function comeBack() {
  try {
    await openid.comeBack();
    await admit();
  } catch (problem) {
    showLogin(problem.message);
    return;
  }
  api.remember();
  await arrive();
}

async function start() {
  if (openid.isBack()) {
    await comeBack();
    return;
  }
  if (!api.isLoggedIn()) {
    showLogin();
    return;
  }
  try {
    await admit();
  } catch (problem) {
    if (problem.status !== 0) {
      showLogin(problem.status === 401 ? whyOut(problem) : problem.message);
      return;
    }
    put(h("p", { class: "waiting" }, "The node does not answer; trying again."));
    setTimeout(start, REFRESH_MS);
    return;
  }
  await arrive();
}

let resizing = 0;
window.addEventListener("resize", () => {
  clearTimeout(resizing);
  resizing = setTimeout(() => session.whoever() && redraw(), RESIZED_MS); // drawings are laid out for their width
});
window.addEventListener("hashchange", () => session.whoever() && go());
document.addEventListener("visibilitychange", () => !document.hidden && session.whoever() && refresh());
document.addEventListener("leveret:changed", async ({ detail: shown }) => {
  if (session.whoever()) await hostsAgain().then(refresh);
  shown?.(); // to whoever waits for the page to show the change
});
document.addEventListener("leveret:host", () => session.whoever() && refresh());
document.addEventListener("leveret:redraw", () => session.whoever() && redraw());
document.addEventListener("leveret:out", () => showLogin());
applyTheme();
listenForSlash();
api.renewBy(openid.renew);
start();
