"""SCRAM-SHA-256 (RFC 5802, RFC 7677) without channel binding: messages to values, and the server's computations.

    client  n,,n=user,r=CLIENT                          the user's name, and a nonce
    server  r=CLIENTSERVER,s=salt,i=4096                the nonce made longer, and how the password was salted
    client  c=biws,r=CLIENTSERVER,p=proof               proof that the client knows the password
    server  v=signature                                 proof that the server knows it, too

A `Verifier` is stored instead of a password: with it a proof can be checked but not made. All functions are pure;
randomness is passed in. A ValueError says what is wrong with a message, and never quotes it.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import re
import stringprep
import unicodedata
from typing import Final

import attrs

HASH: Final = "sha256"
DIGEST_SIZE: Final = 32
SALT_SIZE: Final = 16
SERVER_NONCE_SIZE: Final = 18  # bytes, before base64
ITERATIONS_MIN: Final = 4096  # RFC 7677, section 4
ITERATIONS_MAX: Final = 1_000_000
ITERATIONS: Final = 15_000  # 5 to 10 ms, for the client at each login, for the server once
MESSAGE_SIZE_MAX: Final = 4096
NONCE: Final = re.compile(r"[\x21-\x2b\x2d-\x7e]{1,512}")
ESCAPE: Final = re.compile(r"=2C|=3D|=")
VERIFIER: Final = re.compile(
    r"SCRAM-SHA-256\$(\d{4,7}):([A-Za-z0-9+/=]{8,88})\$([A-Za-z0-9+/=]{44}):([A-Za-z0-9+/=]{44})"
)


@attrs.frozen
class Verifier:
    """The keys that SCRAM stores instead of a password (RFC 5802, section 3)."""

    salt: bytes
    iterations: int
    stored_key: bytes = attrs.field(repr=False)
    server_key: bytes = attrs.field(repr=False)

    @classmethod
    def of(cls, password: bytes, salt: bytes, iterations: int) -> Verifier:
        """Derive the verifier of a password; takes 0.5 us for each iteration."""
        salted = hashlib.pbkdf2_hmac(HASH, prepared(password), salt, iterations)
        client_key = hmac.digest(salted, b"Client Key", HASH)
        return cls(
            salt,
            iterations,
            hashlib.new(HASH, client_key).digest(),
            hmac.digest(salted, b"Server Key", HASH),
        )

    @classmethod
    def nobodys(cls, name: str, key: bytes, iterations: int) -> Verifier:
        """Return the verifier of an unknown user: the same one each time for that name, and no proof is right."""
        salt = hmac.digest(key, b"salt " + name.encode("utf-8", "surrogatepass"), HASH)[:SALT_SIZE]
        return cls(salt, iterations, bytes(DIGEST_SIZE), bytes(DIGEST_SIZE))

    @classmethod
    def parse(cls, text: str) -> Verifier:
        """Parse what `text` returns. Raises ValueError if it is malformed or out of bounds."""
        match = VERIFIER.fullmatch(text)
        if match is None:
            raise ValueError("a SCRAM verifier is SCRAM-SHA-256$ITERATIONS:SALT$STORED-KEY:SERVER-KEY")
        salt, stored_key, server_key = (from_base64(part) for part in match.groups()[1:])
        iterations = int(match[1])
        if not ITERATIONS_MIN <= iterations <= ITERATIONS_MAX:
            raise ValueError(f"a SCRAM verifier has {ITERATIONS_MIN} to {ITERATIONS_MAX} iterations")
        if len(stored_key) != DIGEST_SIZE or len(server_key) != DIGEST_SIZE:
            raise ValueError(f"a key of a SCRAM verifier has {DIGEST_SIZE} octets")
        return cls(salt, iterations, stored_key, server_key)

    @property
    def text(self) -> str:
        """The verifier as stores keep it, in PostgreSQL's form."""
        salt, stored, server = map(in_base64, (self.salt, self.stored_key, self.server_key))
        return f"SCRAM-SHA-256${self.iterations}:{salt}${stored}:{server}"

    def accepts(self, proof: bytes, messages: bytes) -> bool:
        """Return whether the proof was made with the password, for this exchange."""
        signature = hmac.digest(self.stored_key, messages, HASH)
        client_key = bytes(a ^ b for a, b in zip(proof, signature, strict=True))
        return hmac.compare_digest(hashlib.new(HASH, client_key).digest(), self.stored_key)

    def signature(self, messages: bytes) -> bytes:
        """Return the server's proof that it knows the password."""
        return hmac.digest(self.server_key, messages, HASH)


@attrs.frozen
class ClientFirst:
    """The client's first message."""

    header: bytes  # with its commas, as it was sent: the client repeats it
    bare: bytes
    acting_as: str  # empty: as `user`
    user: str
    nonce: str

    @classmethod
    def parse(cls, message: bytes) -> ClientFirst:
        """Parse the message. Raises ValueError if it is malformed, or asks for channel binding or an extension."""
        flag, *others = fields(message)
        if flag.startswith("p="):
            raise ValueError("the client wants channel binding, which was not offered")
        if flag not in ("n", "y"):
            raise ValueError("the first message begins with n or y")
        if len(others) < 2:
            raise ValueError("the first message has too few parts")
        acting_as, *bare = others
        header = f"{flag},{acting_as},".encode()
        if bare[0].startswith("m="):
            raise ValueError("the client wants an extension that is not supported")
        name, nonce = named(bare, ("n", "r"))
        if NONCE.fullmatch(nonce) is None:
            raise ValueError("the client's nonce is not printable ASCII")
        acting = "" if not acting_as else sasl_name(value_of("a", acting_as))
        return cls(header, message[len(header) :], acting, sasl_name(name), nonce)


@attrs.frozen
class ClientFinal:
    """The client's second message."""

    without_proof: bytes
    nonce: str
    proof: bytes = attrs.field(repr=False)

    @classmethod
    def parse(cls, message: bytes, header: bytes) -> ClientFinal:
        """Parse the message; `header` is that of the first one. Raises ValueError if it is malformed."""
        parts = fields(message)
        if not parts[-1].startswith("p=") or len(parts) < 3:
            raise ValueError("the second message ends with a proof")
        binding, nonce = named(parts, ("c", "r"))
        if from_base64(binding) != header:
            raise ValueError("the second message does not repeat the header of the first one")
        proof = from_base64(parts[-1][2:])
        if len(proof) != DIGEST_SIZE:
            raise ValueError(f"a proof has {DIGEST_SIZE} octets")
        return cls(message[: message.rindex(b",p=")], nonce, proof)


class ScramExchange:
    """The server's side of one exchange, after the client's first message."""

    def __init__(self, first: ClientFirst, server_nonce: str) -> None:
        self.first = first
        self._nonce = first.nonce + server_nonce
        self._verifier: Verifier | None = None
        self._challenge = b""

    def challenge(self, verifier: Verifier) -> bytes:
        """Return the server's first message."""
        self._verifier = verifier
        salt = in_base64(verifier.salt)
        self._challenge = f"r={self._nonce},s={salt},i={verifier.iterations}".encode()
        return self._challenge

    def answer(self, message: bytes) -> bytes | None:
        """Return the server's second message, or None if the password was wrong. Raises ValueError."""
        assert self._verifier is not None, "the challenge comes first"
        final = ClientFinal.parse(message, self.first.header)
        if not hmac.compare_digest(final.nonce.encode(), self._nonce.encode()):
            raise ValueError("the nonce does not match")
        messages = b",".join((self.first.bare, self._challenge, final.without_proof))
        if not self._verifier.accepts(final.proof, messages):
            return None
        return b"v=" + in_base64(self._verifier.signature(messages)).encode()


def fields(message: bytes) -> list[str]:
    """Split a message at its commas. Raises ValueError if it is too long, not UTF-8, or contains a NUL."""
    if len(message) > MESSAGE_SIZE_MAX:
        raise ValueError("the message is too long")
    try:
        text = message.decode()
    except UnicodeDecodeError:
        raise ValueError("the message is not UTF-8") from None
    if "\0" in text:
        raise ValueError("there is a NUL in the message")
    return text.split(",")


def named(parts: list[str], names: tuple[str, str]) -> list[str]:
    """Return the values of the first two parts, which must have these names. Raises ValueError if they do not."""
    if len(parts) < len(names):
        raise ValueError("the message has too few parts")
    return [value_of(name, part) for name, part in zip(names, parts, strict=False)]


def value_of(name: str, part: str) -> str:
    if not part.startswith(f"{name}="):
        raise ValueError(f"the message has no {name}= in its place")
    return part[2:]


def sasl_name(text: str) -> str:
    """Decode the commas and equals signs of a name (RFC 5802, section 5.1). Raises ValueError if it is malformed."""
    if not text:
        raise ValueError("a name is empty")

    def plain(match: re.Match[str]) -> str:
        if match[0] == "=":
            raise ValueError("a name has an equals sign that is none of =2C and =3D")
        return "," if match[0] == "=2C" else "="

    return ESCAPE.sub(plain, text)


def from_base64(text: str) -> bytes:
    """Decode base64 strictly. Raises ValueError if the text is malformed."""
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        raise ValueError("a part of the message is not base64") from None


def in_base64(octets: bytes) -> str:
    return base64.b64encode(octets).decode()


# SASLprep (RFC 4013).

PROHIBITED: Final = (
    stringprep.in_table_c12,
    stringprep.in_table_c21_c22,
    stringprep.in_table_c3,
    stringprep.in_table_c4,
    stringprep.in_table_c5,
    stringprep.in_table_c6,
    stringprep.in_table_c7,
    stringprep.in_table_c8,
    stringprep.in_table_c9,
    stringprep.in_table_a1,  # not assigned in Unicode 3.2
)


def prepared(password: bytes) -> bytes:
    """Return a password as SASLprep spells it, or unchanged if SASLprep prohibits it."""
    if password.isascii():
        return password  # SASLprep changes no ASCII; what it prohibits is kept unchanged
    try:
        return saslprep(password.decode()).encode()
    except ValueError:
        return password


def saslprep(text: str) -> str:
    """Apply SASLprep (RFC 4013), prohibiting what Unicode 3.2 does not assign. Raises ValueError."""
    spaced = (" " if stringprep.in_table_c12(each) else each for each in text)
    mapped = "".join(each for each in spaced if not stringprep.in_table_b1(each))
    normal = unicodedata.ucd_3_2_0.normalize("NFKC", mapped)
    if any(is_in(each) for each in normal for is_in in PROHIBITED):
        raise ValueError("there is a character in it that may not be in a password")
    _check_directions(normal)
    return normal


def _check_directions(text: str) -> None:
    """Raise ValueError unless bidirectional text follows RFC 3454, section 6."""
    if not any(map(stringprep.in_table_d1, text)):
        return
    ends_well = stringprep.in_table_d1(text[0]) and stringprep.in_table_d1(text[-1])
    if not ends_well or any(map(stringprep.in_table_d2, text)):
        raise ValueError("it is written in two directions")
