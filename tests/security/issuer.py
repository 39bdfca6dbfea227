"""Somebody who signs tokens, with keys of his own: claims in, tokens and the file of his keys out."""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Final, TypeAlias

import jwt
from cryptography.hazmat.primitives.asymmetric.ec import SECP256R1, EllipticCurvePrivateKey
from cryptography.hazmat.primitives.asymmetric.ec import generate_private_key as generate_ec
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPrivateKey
from cryptography.hazmat.primitives.asymmetric.rsa import generate_private_key as generate_rsa

Private: TypeAlias = RSAPrivateKey | EllipticCurvePrivateKey | Ed25519PrivateKey
Jwk: TypeAlias = dict[str, object]

WALL: Final = 1_000_000_000  # what a manual clock shows at first
LASTS_S: Final = 600
CLAIMS: Final[Mapping[str, object]] = {
    "iss": "https://issuer.example",
    "aud": ["leveret", "other"],
    "sub": "shop",
    "exp": WALL + LASTS_S,
    "iat": WALL,
    "scope": "leveret.read:*/* leveret.write:*/* leveret.configure:*/*",
}
ALL: Final = ("RS256", "ES256", "EdDSA")


@cache
def private(algorithm: str) -> Private:
    if algorithm.startswith(("RS", "PS")):
        return generate_rsa(65537, 2048)
    return generate_ec(SECP256R1()) if algorithm == "ES256" else Ed25519PrivateKey.generate()


def public_jwk(algorithm: str, **more: object) -> Jwk:
    kind = jwt.PyJWS().get_algorithm_by_name(algorithm)
    return {**kind.to_jwk(private(algorithm).public_key(), as_dict=True), "kid": algorithm, **more}


def token(algorithm: str = "RS256", headers: Mapping[str, object] | None = None, **claims: object) -> str:
    """A good token, but for the claims that are given; None takes one away."""
    said = {name: value for name, value in {**CLAIMS, **claims}.items() if value is not None}
    return signed(json.dumps(said).encode(), algorithm, headers)


def signed(
    payload: bytes, algorithm: str = "RS256", headers: Mapping[str, object] | None = None, key: object = None
) -> str:
    """Any octets, signed."""
    head = {name: said for name, said in {"kid": algorithm, **(headers or {})}.items() if said is not None}
    return jwt.PyJWS().encode(payload, key or private(algorithm), algorithm, head)  # type: ignore[arg-type]


def pasted(header: bytes, payload: bytes, signature: bytes = b"") -> str:
    """Three parts, whatever they are."""
    return ".".join(
        base64.urlsafe_b64encode(part).rstrip(b"=").decode() for part in (header, payload, signature)
    )


def write_keys(folder: Path, keys: Sequence[Jwk] | None = None) -> Path:
    file = folder / "keys.json"
    file.write_text(json.dumps({"keys": [public_jwk(each) for each in ALL] if keys is None else keys}))
    return file


def settings(file: Path, more: str = "") -> str:
    """The section of a configuration."""
    return f'[oauth]\njwks_file = "{file}"\nresource_server_id = "leveret"\n{more}\n'
