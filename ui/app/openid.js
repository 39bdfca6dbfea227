// Logs in at the issuer that the node trusts: OpenID Connect, authorization code with PKCE (RFC 6749, RFC 7636).
//
//     page ──challenge──> issuer, where the user logs in ──code──> page ──code, verifier──> issuer ──token──> page
//
// The token is used as one that was typed in. What the login needs while the user is away, and the token that renews the
// first, stay in this tab's session storage; where the issuer can, the code comes behind the `#`, which no server sees.

import { Failure, endsAt, get, logInWith, remember } from "./api.js";

const PENDING = "leveret.openid";
const RENEWAL = "leveret.renewal";
const OCTETS = 32; // of a verifier and a state
const EARLY_MS = 30_000; // before its end a token is renewed

let offer = null; // a promise of how to log in there, or of null

/** Returns a promise of {issuer, clientId, scopes, metadata}, or of null if the node knows no such issuer. */
export function offered() {
  offer ??= get("auth").then(
    (found) =>
      found?.oauth_enabled
        ? {
            issuer: found.oauth_provider_url,
            clientId: found.oauth_client_id,
            scopes: found.oauth_scopes,
            metadata: found.oauth_metadata_url,
          }
        : null,
    () => {
      offer = null; // to be asked for again
      return null;
    },
  );
  return offer;
}

export const nameOf = ({ issuer }) => new URL(issuer).host;

/** Leaves for the issuer. Throws Failure if that cannot be done. */
export async function leaveFor(there) {
  if (!crypto.subtle) throw new Failure(0, "the browser allows this only over TLS, or on this machine");
  const found = await metadataOf(there);
  const [verifier, state] = [random(), random()];
  const pending = {
    verifier,
    state,
    issuer: there.issuer,
    clientId: there.clientId,
    tokens: found.token_endpoint,
    isNamed: found.authorization_response_iss_parameter_supported === true, // RFC 9207
    redirect: location.origin + location.pathname,
    hash: location.hash,
  };
  sessionStorage.setItem(PENDING, JSON.stringify(pending));
  const asked = new URL(found.authorization_endpoint);
  for (const [name, value] of Object.entries({
    response_type: "code",
    client_id: there.clientId,
    redirect_uri: pending.redirect,
    scope: there.scopes,
    state,
    code_challenge: encoded(await crypto.subtle.digest("SHA-256", new TextEncoder().encode(verifier))),
    code_challenge_method: "S256",
    ...(found.response_modes_supported?.includes("fragment") && { response_mode: "fragment" }),
  }))
    asked.searchParams.set(name, value);
  location.assign(asked);
}

async function metadataOf({ issuer, metadata }) {
  const found = await json(metadata, {});
  const base = new URL(issuer);
  if (found.issuer?.replace(/\/$/, "") !== issuer.replace(/\/$/, ""))
    throw new Failure(0, "the issuer's document names another issuer");
  for (const name of ["authorization_endpoint", "token_endpoint"]) {
    if (!URL.canParse(found[name]) || new URL(found[name]).protocol !== base.protocol)
      throw new Failure(0, `the issuer's document has no ${name} that can be used`);
  }
  return found;
}

async function json(where, request) {
  let answer;
  try {
    answer = await fetch(where, { ...request, credentials: "omit", cache: "no-store" });
    const found = await answer.json();
    if (answer.ok) return found;
    throw new Failure(0, `the issuer refuses: ${found.error_description ?? found.error ?? answer.status}`);
  } catch (problem) {
    if (problem instanceof Failure) throw problem;
    throw new Failure(0, `the issuer does not answer as it should${answer ? `: ${answer.status}` : ""}`);
  }
}

const encoded = (octets) =>
  btoa(String.fromCharCode(...new Uint8Array(octets)))
    .replaceAll("+", "-")
    .replaceAll("/", "_")
    .replaceAll("=", "");

const random = () => encoded(crypto.getRandomValues(new Uint8Array(OCTETS)));

/** Returns what the issuer has sent back with the user; null if nobody comes from there. */
function answerInAddress() {
  for (const text of [location.search.slice(1), location.hash.slice(1)]) {
    const found = new URLSearchParams(text);
    if (found.has("state") && (found.has("code") || found.has("error"))) return found;
  }
  return null;
}

export const isBack = () => sessionStorage.getItem(PENDING) !== null && answerInAddress() !== null;

/** Takes the code out of the address and the token for it from the issuer. Throws Failure. */
export async function comeBack() {
  const answer = answerInAddress();
  const pending = JSON.parse(sessionStorage.getItem(PENDING));
  sessionStorage.removeItem(PENDING);
  history.replaceState(null, "", location.pathname + pending.hash);
  const isOthers = answer.has("iss") ? answer.get("iss") !== pending.issuer : pending.isNamed;
  if (answer.get("state") !== pending.state || isOthers)
    throw new Failure(0, "this answer does not belong to a login of this tab");
  if (answer.has("error"))
    throw new Failure(0, `the issuer refuses: ${answer.get("error_description") ?? answer.get("error")}`);
  take(
    await exchange(pending.tokens, pending.clientId, {
      grant_type: "authorization_code",
      code: answer.get("code"),
      redirect_uri: pending.redirect,
      code_verifier: pending.verifier,
    }),
  );
}

/** Returns the token for what the fields prove, and what renews it. Throws Failure. */
async function exchange(tokens, clientId, fields) {
  const found = await json(tokens, {
    method: "POST",
    body: new URLSearchParams({ ...fields, client_id: clientId }),
  });
  if (typeof found.access_token !== "string") throw new Failure(0, "the issuer has sent no token");
  return { tokens, clientId, token: found.access_token, renewal: found.refresh_token ?? fields.refresh_token };
}

function take({ tokens, clientId, token, renewal }) {
  logInWith(token);
  if (renewal) sessionStorage.setItem(RENEWAL, JSON.stringify({ tokens, clientId, renewal }));
}

let renewing = null;

/** Renews a token that is about to expire, if the issuer has given something to renew it with. */
export function renew() {
  const end = endsAt();
  if (end === null || end - Date.now() > EARLY_MS || !sessionStorage.getItem(RENEWAL)) return null;
  renewing ??= renewed().finally(() => {
    renewing = null;
  });
  return renewing;
}

async function renewed() {
  const kept = sessionStorage.getItem(RENEWAL);
  const isLoggedOut = () => sessionStorage.getItem(RENEWAL) !== kept; // meanwhile; perhaps somebody else has logged in
  const { tokens, clientId, renewal } = JSON.parse(kept);
  try {
    const found = await exchange(tokens, clientId, { grant_type: "refresh_token", refresh_token: renewal });
    if (isLoggedOut()) return;
    take(found);
    remember();
  } catch {
    if (!isLoggedOut()) forget(); // the node says that the token has run out, and the user logs in again
  }
}

export const forget = () => sessionStorage.removeItem(RENEWAL);
