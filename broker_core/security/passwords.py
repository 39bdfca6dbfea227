"""Passwords: from the bytes of a password to its stored hash, and the comparison of a password with a hash.

There are two families. RabbitMQ's hash is a salt of 4 bytes and the SHA-256 or SHA-512 of salt and password: hashes of
its definition files can be imported, and a check takes a microsecond, also for a thief of the hash. Argon2id (RFC 9106)
takes a quarter of a second and 64 MiB for each check; passwords that clients set are stored with it, and it belongs in
a thread. For SCRAM, a verifier is kept besides. No repr of these classes shows a password or a hash.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import os
import re
from typing import Final

import attrs

from leveret.security.scram import SALT_SIZE as SCRAM_SALT_SIZE
from leveret.security.scram import Verifier

SALT_SIZE: Final = 4
SHA256: Final = "rabbit_password_hashing_sha256"
DIGESTS: Final = {SHA256: "sha256", "rabbit_password_hashing_sha512": "sha512"}
ARGON2ID: Final = "argon2id"
ALGORITHMS: Final = (*DIGESTS, ARGON2ID)  # as definition files name them

ENCODED: Final = re.compile(
    r"\$argon2id\$v=19\$m=(\d{1,7}),t=(\d{1,3}),p=(\d{1,3})\$[A-Za-z0-9+/]{11,86}\$[A-Za-z0-9+/]{16,86}"
)
MEMORY_KIB_MAX: Final = 256 * 1024  # of an imported hash: every check of it needs that much
PASSES_MAX: Final = 32
LANES_MAX: Final = 16


@attrs.frozen
class Cost:
    """The cost of an argon2id hash. The default is the second one recommended by RFC 9106 (section 4), in one lane.

    Lanes are threads that wait for each other. With one the work is the same, and guesses are no cheaper; with four,
    which meet at the end of each of a dozen slices, other work on the same cores waited 4 ms instead of 0.3 (p99).
    """

    memory_kib: int = 64 * 1024
    passes: int = 3
    lanes: int = 1


@attrs.frozen
class PasswordHash:
    """A stored password: salt and digest, or the encoded string of argon2id."""

    kept: bytes = attrs.field(repr=False)
    algorithm: str = SHA256
    # left out of comparisons: with or without a verifier, it is the same password
    scram: Verifier | None = attrs.field(default=None, repr=False, eq=False)

    @classmethod
    def of(cls, password: str | bytes, salt: bytes, algorithm: str = SHA256) -> PasswordHash:
        """Return the quick (SHA) hash of a password; `algorithm` is a key of `DIGESTS`."""
        return cls(salt + digest(algorithm, salt, octets_of(password)), algorithm)

    @classmethod
    def argon2id(cls, password: str | bytes, cost: Cost) -> PasswordHash:
        """Return the argon2id hash; slow, callable from any thread. Raises MemoryError if memory runs out."""
        from argon2 import PasswordHasher
        from argon2.exceptions import HashingError

        hasher = PasswordHasher(cost.passes, cost.memory_kib, cost.lanes)
        try:
            return cls(hasher.hash(octets_of(password)).encode(), ARGON2ID)
        except HashingError:
            raise MemoryError("there is no memory to hash a password") from None

    @classmethod
    def parse(cls, text: str, algorithm: str | None = SHA256) -> PasswordHash:
        """Read a definition file's `password_hash` and `hashing_algorithm` (None: guess it from the form of the hash).

        Raises ValueError if the algorithm is unknown, or the hash is malformed or too costly to check.
        """
        if algorithm is None:
            algorithm = algorithm_of(text)
        if algorithm == ARGON2ID:
            return cls(checked(text).encode(), ARGON2ID)
        if algorithm not in DIGESTS:
            raise ValueError(f"hashing algorithm '{algorithm}' is not one of {', '.join(ALGORITHMS)}")
        try:
            salted = base64.b64decode(text, validate=True)
        except (binascii.Error, ValueError):
            raise ValueError("the password hash is not base64") from None
        size = _size(algorithm)
        if len(salted) != size:
            raise ValueError(f"the password hash has {len(salted)} bytes, {algorithm} needs {size}")
        return cls(salted, algorithm)

    @property
    def text(self) -> str:
        """The hash in the form of definition files: base64, or the encoded argon2id string."""
        return self.kept.decode() if self.is_slow else base64.b64encode(self.kept).decode()

    @property
    def is_slow(self) -> bool:
        """True if `matches` takes so long that it belongs in a thread."""
        return self.algorithm == ARGON2ID

    def matches(self, password: str | bytes) -> bool:
        octets = octets_of(password)
        if self.is_slow:
            return _verified(self.kept, octets)
        salt = self.kept[:SALT_SIZE]
        return hmac.compare_digest(self.kept[SALT_SIZE:], digest(self.algorithm, salt, octets))


def _verified(encoded: bytes, password: bytes) -> bool:
    from argon2.exceptions import VerificationError
    from argon2.low_level import Type, verify_secret

    try:
        return verify_secret(encoded, password, Type.ID)
    except VerificationError:  # the password is wrong, or there is not enough memory to check it
        return False


def checked(encoded: str) -> str:
    """Return an encoded argon2id string. Raises ValueError if it is malformed, or too costly to check."""
    match = ENCODED.fullmatch(encoded)
    if match is None:
        raise ValueError("the password hash is not an encoded argon2id string of version 19")
    memory_kib, passes, lanes = map(int, match.groups())
    if not 1 <= lanes <= LANES_MAX or not 8 * lanes <= memory_kib <= MEMORY_KIB_MAX:
        raise ValueError(
            f"the password hash takes {memory_kib} KiB in {lanes} lanes; "
            f"it may take up to {MEMORY_KIB_MAX} KiB in up to {LANES_MAX}"
        )
    if not 1 <= passes <= PASSES_MAX:
        raise ValueError(f"the password hash takes {passes} passes; it may take up to {PASSES_MAX}")
    return encoded


def algorithm_of(text: str) -> str:
    """Guess the algorithm from the form of a hash: by its prefix, otherwise by its length."""
    if text.startswith("$argon2id$"):
        return ARGON2ID
    return next((name for name in DIGESTS if len(text) == (_size(name) + 2) // 3 * 4), SHA256)


def _size(algorithm: str) -> int:
    return SALT_SIZE + hashlib.new(DIGESTS[algorithm]).digest_size


def octets_of(password: str | bytes) -> bytes:
    return password.encode("utf-8", "surrogatepass") if isinstance(password, str) else password


def digest(algorithm: str, salt: bytes, password: bytes) -> bytes:
    return hashlib.new(DIGESTS[algorithm], salt + password).digest()


def nobodys(cost: Cost) -> PasswordHash:
    """Return an argon2id hash that no password matches; checking it takes as long as checking a user's."""
    lanes = f"m={cost.memory_kib},t={cost.passes},p={cost.lanes}"
    salt, digest = (base64.b64encode(bytes(size)).rstrip(b"=").decode() for size in (16, 32))
    return PasswordHash(f"$argon2id$v=19${lanes}${salt}${digest}".encode(), ARGON2ID)


NOBODYS: Final = PasswordHash.of(b"", bytes(SALT_SIZE))


@attrs.frozen
class Hashing:
    """The settings by which new passwords are hashed."""

    algorithm: str = ARGON2ID  # for passwords that clients set; others get the quick hash
    cost: Cost = Cost()
    scram_iterations: int | None = None  # None: SCRAM is not offered

    def kept(self, password: str | bytes) -> PasswordHash:
        """Hash a password that a client sets; slow, callable from any thread. Raises MemoryError."""
        if self.algorithm == ARGON2ID:
            return self.with_scram(PasswordHash.argon2id(password, self.cost), password)
        return self.quick(password, os.urandom(SALT_SIZE))

    def quick(self, password: str | bytes, salt: bytes) -> PasswordHash:
        """Hash a password that stands in this machine's own files anyway, with the quick hash."""
        return self.with_scram(PasswordHash.of(password, salt), password)

    def with_scram(self, known: PasswordHash, password: str | bytes) -> PasswordHash:
        """Return the hash with a SCRAM verifier for the same password, if SCRAM is enabled and it has none yet."""
        if self.scram_iterations is None or known.scram is not None:
            return known
        salt = os.urandom(SCRAM_SALT_SIZE)
        verifier = Verifier.of(octets_of(password), salt, self.scram_iterations)
        return attrs.evolve(known, scram=verifier)
