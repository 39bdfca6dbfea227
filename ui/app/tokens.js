// Reads what a token says of itself (RFC 7519, section 4.1), for people only: the node decides whether it is good.

/** Returns when it expires, in milliseconds since 1970; null if it does not say, or is no such token. */
export function endOf(token) {
  const [, payload] = token.split(".");
  try {
    const { exp } = JSON.parse(atob(payload.replaceAll("-", "+").replaceAll("_", "/")));
    return Number.isFinite(exp) ? exp * 1000 : null;
  } catch {
    return null;
  }
}
