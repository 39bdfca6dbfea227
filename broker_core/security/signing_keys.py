"""A JWK Set (RFC 7517) to the keys that check the signatures of tokens.

The type of a key decides which algorithms may sign with it; keys for anything but signatures are skipped. Only the
public part of a key is kept. Signatures are checked by PyJWT, which is imported only if there is a key.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from importlib.util import find_spec
from itertools import islice
from pathlib import Path
from typing import Final, TypeAlias

import attrs

from leveret.config.config import ConfigError
from leveret.config.types import Place, printed

JWKS_SIZE_MAX: Final = 1 << 20
KEYS_MAX: Final = 200
SHOWN_MAX: Final = 60  # characters of a claim in the log
RSA_BITS_MIN: Final = 2048  # RFC 7518, 3.3

RSA: Final = ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512")
BY_CURVE: Final = {"P-256": ("ES256",), "P-384": ("ES384",), "P-521": ("ES512",)}
BY_SECRET: Final = {"HS256": 32, "HS384": 48, "HS512": 64}  # the fewest bytes of a secret (RFC 7518, 3.2)
EDWARDS: Final = ("Ed25519", "Ed448")
PUBLIC: Final = {"RSA": ("kty", "n", "e"), "EC": ("kty", "crv", "x", "y"), "OKP": ("kty", "crv", "x")}

Claim: TypeAlias = "str | int | float | bool | list[Claim] | Claims | None"
Claims: TypeAlias = dict[str, Claim]
Verify: TypeAlias = Callable[[bytes, str], bool]  # the token, the algorithm


@attrs.frozen
class SigningKey:
    """A key of a JWK Set."""

    name: str | None  # its `kid`
    algorithms: tuple[str, ...]  # the allowed algorithms that fit the key
    verify: Verify = attrs.field(repr=False)


def read_keys(file: Path, allowed: Sequence[str]) -> tuple[SigningKey, ...]:
    """Read the keys that tokens may be signed with. Raises ConfigError if there are none, or the file is malformed."""
    place = Place([], "oauth.jwks_file")
    require_library(place)
    keys = tuple(keys_in(_listed(file, place), allowed, place))
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


def require_library(place: Place) -> None:
    """Raise ConfigError if the library is missing that checks signatures."""
    if find_spec("jwt") is None or find_spec("cryptography") is None:
        place.refuse("keys of tokens, but no PyJWT to use them", 'the extra: pip install "leveret[oauth]"')
        raise ConfigError(place.problems)


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


def keys_in(listed: Iterable[object], allowed: Sequence[str], place: Place) -> Iterator[SigningKey]:
    """Yield the keys that can check signatures; skip others, such as keys for encryption."""
    for index, jwk in enumerate(islice(listed, KEYS_MAX)):
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


def shown(claim: Claim) -> str:
    """Return a claim as the log shows it, shortened to `SHOWN_MAX` characters."""
    if claim is None:
        return "not said"
    text = printed(claim) if isinstance(claim, str | int | float) else "a list or an object"
    return text if len(text) <= SHOWN_MAX else text[: SHOWN_MAX - 1] + "…"
