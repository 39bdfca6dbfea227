"""Tokens to users: check a signed JSON Web Token (RFC 7519) and return the user and the scopes that it names.

    password or bearer ─> recognises ─> signature by a key of the JWKS file ─> claims ─> User with scopes

The key decides which algorithms may sign a token, not the token: `none` is never accepted, and a public key is never
taken for a shared secret. Before the signature is checked, only the algorithm and the key's name are read from a token.
A token never appears in a log or an error text.

Signatures are checked by PyJWT, which is imported only if the configuration enables tokens.
"""

from __future__ import annotations

import json
import logging
import re
from base64 import urlsafe_b64decode
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from importlib.util import find_spec
from math import isfinite
from pathlib import Path
from typing import Final, TypeAlias

import attrs

from broker_core.clock import Clock
from broker_core.config.load import ConfigError
from broker_core.config.oauth import OAuthSettings
from broker_core.config.types import Place, printed
from broker_core.security import scopes
from broker_core.security.access import User

log: Final = logging.getLogger("leveret.security")

TOKEN_SIZE_MAX: Final = 8192
JWKS_SIZE_MAX: Final = 1 << 20
NAME_MAX: Final = 255
UNKNOWN: Final = "unknown"  # RabbitMQ's name for the user of a token without a name
LOOK_INTERVAL_S: Final = 60.0  # between checks whether the file of keys has changed
SHOWN_MAX: Final = 60  # characters of a claim in the log
RSA_BITS_MIN: Final = 2048  # RFC 7518, 3.3
FORM: Final = re.compile(rb"[\w-]+\.[\w-]+\.[\w-]*", re.ASCII)
BEGINNINGS: Final = (
    b"eyJ",
    b"eyA",
    b"ewo",
    b"ew0",
)  # of tokens: base64 of a brace and a quote or white space

RSA: Final = ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512")
BY_CURVE: Final = {"P-256": ("ES256",), "P-384": ("ES384",), "P-521": ("ES512",)}
BY_SECRET: Final = {"HS256": 32, "HS384": 48, "HS512": 64}  # the fewest bytes of a secret (RFC 7518, 3.2)
EDWARDS: Final = ("Ed25519", "Ed448")
PUBLIC: Final = {"RSA": ("kty", "n", "e"), "EC": ("kty", "crv", "x", "y"), "OKP": ("kty", "crv", "x")}

Claim: TypeAlias = "str | int | float | bool | list[Claim] | Claims | None"
Claims: TypeAlias = dict[str, Claim]
Verify: TypeAlias = Callable[[bytes, str], bool]  # the token, the algorithm


class TokenRefused(Exception):  # noqa: N818 - a refusal, not an error of ours
    """Raised if a token is not accepted; the text says why, for the log."""


@attrs.frozen
class SigningKey:
    """A key of the JWKS file."""

    name: str | None  # its `kid`
    algorithms: tuple[str, ...]  # the allowed algorithms that fit the key
    verify: Verify = attrs.field(repr=False)


class Tokens:
    """Authenticates users by their tokens."""

    def __init__(self, settings: OAuthSettings, clock: Clock, nameless: str | None = UNKNOWN) -> None:
        """Read the keys. `nameless` is the name of users whose tokens have none; None: such tokens are refused.

        Raises ConfigError if the file cannot be read or holds no usable key."""
        assert settings.jwks_file is not None
        self._settings = settings
        self._nameless = nameless
        self._clock = clock
        self._file = settings.jwks_file
        self._keys = read_keys(self._file, settings.algorithms)
        self._version = version(self._file)
        self._looked_at = clock.now()

    def recognises(self, password: str | bytes) -> bool:
        """Return whether a password has the form of a token; then it is never checked as a password."""
        octets = password.encode(errors="replace") if isinstance(password, str) else password
        return octets.startswith(BEGINNINGS) and octets.count(b".") == 2

    def authenticate(self, name: str, token: str | bytes) -> User | None:
        """Return the token's user, or None if it is refused. `name` is what the client claims, and is only logged."""
        try:
            return self.user(token)
        except TokenRefused as refused:
            log.warning("the token of user '%s' is refused: %s", name, refused)
            return None

    def user(self, token: str | bytes) -> User:
        """Check a token and return its user. Raises TokenRefused."""
        self._look_at_file()
        octets = token.encode(errors="replace") if isinstance(token, str) else token
        if len(octets) > TOKEN_SIZE_MAX:
            raise TokenRefused(f"it has more than {TOKEN_SIZE_MAX} octets")
        if not FORM.fullmatch(octets):
            raise TokenRefused("it does not have three parts in base64")
        header, payload, _ = octets.split(b".")
        self._verify(octets, content(header, "header"))
        return self._user_of(content(payload, "payload"))

    def _verify(self, token: bytes, header: Claims) -> None:
        algorithm, name = header.get("alg"), header.get("kid")
        if not isinstance(algorithm, str) or algorithm not in self._settings.algorithms:
            raise TokenRefused(f"its algorithm is {shown(algorithm)}")
        named = [key for key in self._keys if name is None or key.name == name]
        fitting = [key for key in named if algorithm in key.algorithms]
        if not named:
            raise TokenRefused(f"there is no key {shown(name)}")
        if len(fitting) != 1:
            raise TokenRefused(
                f"{len(fitting)} keys fit: its algorithm is {algorithm}, its key {shown(name)}"
            )
        if not fitting[0].verify(token, algorithm):
            raise TokenRefused("its signature is wrong")

    def _user_of(self, claims: Claims) -> User:
        expires_at = self._check_times(claims)
        self._check_parties(claims)
        granted, tags = scopes.parse(self._scopes_of(claims), self._settings.prefix)
        return User(self._name_of(claims), tags, scopes=granted, expires_at=expires_at)

    def _check_times(self, claims: Claims) -> float:
        """Return when the token expires, in seconds since the epoch. Raises TokenRefused if it is not valid now."""
        now, leeway_s = self._clock.wall(), self._settings.leeway_s
        expires_at = moment(claims, "exp")
        if expires_at is None:
            raise TokenRefused("it does not say when it expires (exp)")
        if expires_at + leeway_s <= now:
            raise TokenRefused(f"it has expired, {now - expires_at:.0f} s ago")
        for claim in ("nbf", "iat"):
            begins_at = moment(claims, claim)
            if begins_at is not None and begins_at > now + leeway_s:
                raise TokenRefused(f"it is not valid for another {begins_at - now:.0f} s ({claim})")
        return expires_at + leeway_s

    def _check_parties(self, claims: Claims) -> None:
        settings = self._settings
        if settings.issuer is not None and claims.get("iss") != settings.issuer:
            raise TokenRefused(f"its issuer is {shown(claims.get('iss'))}")
        audience = claims.get("aud")
        if settings.verify_audience and settings.resource_server_id not in words(audience, "aud"):
            raise TokenRefused(f"its audience is {shown(audience)}")

    def _name_of(self, claims: Claims) -> str:
        for claim in self._settings.username_claims:
            name = claims.get(claim)
            if isinstance(name, str) and 0 < len(name) <= NAME_MAX:
                return name
        if self._nameless is not None:
            return self._nameless
        raise TokenRefused(f"it has no name in {', '.join(self._settings.username_claims)}")

    def _scopes_of(self, claims: Claims) -> Iterator[str]:
        given = words(claims.get("scope"), "scope")
        if (more := self._settings.additional_scopes_claim) is not None:
            found = claims.get(more)
            if isinstance(found, dict):  # the scopes are listed by resource server
                found = found.get(self._settings.resource_server_id or "")
            given = [*given, *words(found, more)]
        for word in given:
            yield word
            yield from self._settings.scope_aliases.get(word, ())

    def _look_at_file(self) -> None:
        """Read the keys again if the file has changed. If it cannot be read, the keys stay as they were."""
        now = self._clock.now()
        if now < self._looked_at + LOOK_INTERVAL_S:
            return
        self._looked_at = now
        found = version(self._file)
        if found == self._version:
            return
        self._version = found
        try:
            self._keys = read_keys(self._file, self._settings.algorithms)
        except ConfigError as failure:
            log.error("keys of tokens not reloaded, those from before stay\n%s", failure)
        else:
            log.info("keys of tokens reloaded: %s", len(self._keys))


def content(part: bytes, what: str) -> Claims:
    """Return the JSON object that a part of a token encodes. Raises TokenRefused if it does not."""
    try:
        found = strict(urlsafe_b64decode(part + b"=" * (-len(part) % 4)))
    except (ValueError, RecursionError):
        raise TokenRefused(f"its {what} is not JSON, or not plain JSON") from None
    return found


def strict(octets: bytes) -> Claims:
    """Parse a JSON object, refusing duplicate names, NaN and infinity. Raises ValueError or RecursionError."""
    found: Claim = json.loads(octets.decode(), object_pairs_hook=_object, parse_constant=_no_number)
    if not isinstance(found, dict):
        raise ValueError("it is not an object")
    return found


def _object(pairs: list[tuple[str, Claim]]) -> Claims:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("a name stands twice in it")
    return found


def _no_number(constant: str) -> Claim:
    raise ValueError(f"{constant} is no number")


def moment(claims: Claims, claim: str) -> float | None:
    """Return a claim in seconds since the epoch, None if it is absent. Raises TokenRefused if it is not a number."""
    found = claims.get(claim)
    if found is None:
        return None
    if isinstance(found, bool) or not isinstance(found, int | float):
        raise TokenRefused(f"its {claim} is {shown(found)}, not a time")
    try:
        seconds = float(found)
    except OverflowError:
        seconds = float("inf")
    if not isfinite(seconds):
        raise TokenRefused(f"its {claim} is not a time")
    return seconds


def words(claim: Claim, name: str) -> Sequence[str]:
    """Return the words of a claim: a text with spaces, or a list of texts. Raises TokenRefused for other types."""
    if claim is None:
        return ()
    if isinstance(claim, str):
        return claim.split()
    if isinstance(claim, list) and all(isinstance(each, str) for each in claim):
        return [each for each in claim if isinstance(each, str)]
    raise TokenRefused(f"its {name} is neither a text nor a list of texts")


def shown(claim: Claim) -> str:
    """Return a claim as the log shows it, shortened to `SHOWN_MAX` characters."""
    if claim is None:
        return "not said"
    text = printed(claim) if isinstance(claim, str | int | float) else "a list or an object"
    return text if len(text) <= SHOWN_MAX else text[: SHOWN_MAX - 1] + "…"


def version(file: Path) -> tuple[int, int] | None:
    """Return the modification time in ns and the size of a file, to notice changes; None if it is missing."""
    try:
        found = file.stat()
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size


def read_keys(file: Path, allowed: Sequence[str]) -> tuple[SigningKey, ...]:
    """Read the keys that tokens may be signed with. Raises ConfigError if there are none, or the file is malformed."""
    place = Place([], "oauth.jwks_file")
    if find_spec("jwt") is None or find_spec("cryptography") is None:
        place.refuse(
            "a file of keys, but no PyJWT to read it",
            'the extra: pip install "leveret[oauth]"',
        )
        raise ConfigError(place.problems)
    keys = tuple(_keys_in(_listed(file, place), allowed, place))
    if not keys and not place.problems:
        place.refuse(printed(file), f"a file with a key for one of {', '.join(allowed)}")
    for key in keys:
        same = [other for other in keys if other.name == key.name]
        if any(other is not key and set(other.algorithms) & set(key.algorithms) for other in same):
            place.refuse(f"several keys {shown(key.name)}", "each `kid` once")
            break
    if place.problems:
        raise ConfigError(place.problems)
    return keys


def _listed(file: Path, place: Place) -> list[Claim]:
    """Return the list under `keys` in the file; refuse the setting and return an empty list if there is none."""
    try:
        if file.stat().st_size > JWKS_SIZE_MAX:
            raise ValueError(f"it has more than {JWKS_SIZE_MAX} octets")
        listed = strict(file.read_bytes()).get("keys")
    except (OSError, ValueError, RecursionError) as error:
        why = error.strerror if isinstance(error, OSError) else type(error).__name__
        place.refuse(f"{printed(file)} ({why})", 'a JWK Set, {"keys": [...]}')
        return []
    if not isinstance(listed, list):
        place.refuse(f"{printed(file)} without `keys`", 'a JWK Set, {"keys": [...]}')
        return []
    return listed


def _keys_in(listed: Iterable[Claim], allowed: Sequence[str], place: Place) -> Iterator[SigningKey]:
    """Yield the keys that can check signatures; skip others, such as keys for encryption."""
    for index, jwk in enumerate(listed):
        if not isinstance(jwk, dict) or jwk.get("use", "sig") != "sig":
            continue
        fitting = _algorithms(jwk)
        algorithms = tuple(each for each in fitting if each in allowed and jwk.get("alg", each) == each)
        name = jwk.get("kid")
        if not algorithms or not (name is None or isinstance(name, str)):
            continue
        try:
            yield SigningKey(name, algorithms, _verifier(jwk, algorithms[0]))
        except Exception as error:  # cryptography raises many types for malformed keys
            place.item(index).refuse(f"a malformed key ({type(error).__name__})", "a key")


def _algorithms(jwk: Claims) -> tuple[str, ...]:
    """Return the algorithms that fit the type of a key (RFC 7518, 3.1; RFC 8037)."""
    kind, curve = jwk.get("kty"), jwk.get("crv")
    if kind == "RSA":
        return RSA
    if kind == "EC" and isinstance(curve, str):
        return BY_CURVE.get(curve, ())
    if kind == "OKP" and curve in EDWARDS:
        return ("EdDSA",)
    if kind == "oct" and isinstance(secret := jwk.get("k"), str):
        octets = len(secret) * 3 // 4
        return tuple(name for name, least in BY_SECRET.items() if octets >= least)
    return ()


def _verifier(jwk: Claims, algorithm: str) -> Verify:
    """Return a function that checks signatures by a key, keeping only the key's public part."""
    import jwt
    from cryptography.hazmat.primitives.asymmetric.rsa import RSAPublicKey

    public: Mapping[str, Claim] = jwk
    if jwk.get("kty") in PUBLIC:
        public = {name: jwk[name] for name in PUBLIC[str(jwk["kty"])]}
    machine = jwt.PyJWS()
    key = machine.get_algorithm_by_name(algorithm).from_jwk(dict(public))
    if isinstance(key, RSAPublicKey) and key.key_size < RSA_BITS_MIN:
        raise ValueError("too short")

    def verify(token: bytes, algorithm: str) -> bool:
        try:
            machine.decode_complete(token, key, [algorithm])
        except (jwt.PyJWTError, ValueError, TypeError):
            return False
        return True

    return verify
