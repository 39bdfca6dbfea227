// What a token tells about itself (RFC 7519, section 4.1). For people only: whether it is good, the node says.

/** When it runs out, in milliseconds since 1970; null: it does not say, or it is no such token. */
export function endOf(token) {
  const [, payload] = token.split(".");
  try {
    const { exp } = JSON.parse(atob(payload.replaceAll("-", "+").replaceAll("_", "/")));
    return Number.isFinite(exp) ? exp * 1000 : null;
  } catch {
    return null;
  }
}
