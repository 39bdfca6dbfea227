"""SCRAM-SHA-256 (RFC 5802, RFC 7677): messages as values, and the server's side of the arithmetic. No channel binding.

    client  n,,n=user,r=CLIENT                          who, and a nonce
    server  r=CLIENTSERVER,s=salt,i=4096                the nonce made longer, and how the password was salted
    client  c=biws,r=CLIENTSERVER,p=proof               proof of the password
    server  v=signature                                 proof that we know it, too

What is kept of a password is a `Verifier`: with it a proof can be checked but not made. Everything here is pure; what
is random is passed in. ValueError says what is wrong with a message, and never repeats it.
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
SERVER_NONCE_SIZE: Final = 18  # octets, before base64
ITERATIONS_MIN: Final = 4096  # RFC 7677, section 4
ITERATIONS_MAX: Final = 1_000_000
ITERATIONS: Final = 15_000  # 5 to 10 ms, for the client at each login, for us once
MESSAGE_SIZE_MAX: Final = 4096
NONCE: Final = re.compile(r"[\x21-\x2b\x2d-\x7e]{1,512}")
ESCAPE: Final = re.compile(r"=2C|=3D|=")
VERIFIER: Final = re.compile(
    r"SCRAM-SHA-256\$(\d{4,7}):([A-Za-z0-9+/=]{8,88})\$([A-Za-z0-9+/=]{44}):([A-Za-z0-9+/=]{44})"
)


@attrs.frozen
class Verifier:
    """What is kept of a password for SCRAM."""

    salt: bytes
    iterations: int
    stored_key: bytes = attrs.field(repr=False)
    server_key: bytes = attrs.field(repr=False)

    @classmethod
    def of(cls, password: bytes, salt: bytes, iterations: int) -> Verifier:
        """Takes milliseconds: 0.5 us for each iteration."""
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
        """For who has none: the same one whenever that name is asked for, and no proof fits it."""
        salt = hmac.digest(key, b"salt " + name.encode("utf-8", "surrogatepass"), HASH)[:SALT_SIZE]
        return cls(salt, iterations, bytes(DIGEST_SIZE), bytes(DIGEST_SIZE))

    @classmethod
    def parse(cls, text: str) -> Verifier:
        """From what `text` gave. Raises ValueError."""
        found = VERIFIER.fullmatch(text)
        if found is None:
            raise ValueError("a SCRAM verifier is SCRAM-SHA-256$ITERATIONS:SALT$STORED-KEY:SERVER-KEY")
        salt, stored_key, server_key = (from_base64(part) for part in found.groups()[1:])
        iterations = int(found[1])
        if not ITERATIONS_MIN <= iterations <= ITERATIONS_MAX:
            raise ValueError(f"a SCRAM verifier has {ITERATIONS_MIN} to {ITERATIONS_MAX} iterations")
        if len(stored_key) != DIGEST_SIZE or len(server_key) != DIGEST_SIZE:
            raise ValueError(f"a key of a SCRAM verifier has {DIGEST_SIZE} octets")
        return cls(salt, iterations, stored_key, server_key)

    @property
    def text(self) -> str:
        """As stores keep it, in the form that other servers have for it, too."""
        salt, stored, server = map(in_base64, (self.salt, self.stored_key, self.server_key))
        return f"SCRAM-SHA-256${self.iterations}:{salt}${stored}:{server}"

    def accepts(self, proof: bytes, messages: bytes) -> bool:
        """Whether the proof was made with the password, for this exchange."""
        signature = hmac.digest(self.stored_key, messages, HASH)
        client_key = bytes(a ^ b for a, b in zip(proof, signature, strict=True))
        return hmac.compare_digest(hashlib.new(HASH, client_key).digest(), self.stored_key)

    def signature(self, messages: bytes) -> bytes:
        """That we know the password, too."""
        return hmac.digest(self.server_key, messages, HASH)


@attrs.frozen
class ClientFirst:
    """The first message."""

    header: bytes  # with its commas, as it was sent: the client repeats it
    bare: bytes
    acting_as: str  # empty: himself
    user: str
    nonce: str

    @classmethod
    def parse(cls, message: bytes) -> ClientFirst:
        """Raises ValueError."""
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
            raise ValueError("the client wants an extension that nobody knows")
        name, nonce = named(bare, ("n", "r"))
        if NONCE.fullmatch(nonce) is None:
            raise ValueError("the client's nonce is not printable ASCII")
        asked = "" if not acting_as else sasl_name(value_of("a", acting_as))
        return cls(header, message[len(header) :], asked, sasl_name(name), nonce)


@attrs.frozen
class ClientFinal:
    """The client's second message."""

    without_proof: bytes
    nonce: str
    proof: bytes = attrs.field(repr=False)

    @classmethod
    def parse(cls, message: bytes, header: bytes) -> ClientFinal:
        """`header` is that of the first message. Raises ValueError."""
        parts = fields(message)
        if not parts[-1].startswith("p=") or len(parts) < 3:
            raise ValueError("the second message ends with a proof")
        binding, nonce = named(parts, ("c", "r"))
        if from_base64(binding) != header:
            raise ValueError("the second message repeats another header than the first one had")
        proof = from_base64(parts[-1][2:])
        if len(proof) != DIGEST_SIZE:
            raise ValueError(f"a proof has {DIGEST_SIZE} octets")
        return cls(message[: message.rindex(b",p=")], nonce, proof)


class Exchange:
    """One exchange, from its first message on."""

    def __init__(self, first: ClientFirst, server_nonce: str) -> None:
        self.first = first
        self._nonce = first.nonce + server_nonce
        self._verifier: Verifier | None = None
        self._challenge = b""

    def challenge(self, verifier: Verifier) -> bytes:
        """The server's first message."""
        self._verifier = verifier
        salt = in_base64(verifier.salt)
        self._challenge = f"r={self._nonce},s={salt},i={verifier.iterations}".encode()
        return self._challenge

    def answer(self, message: bytes) -> bytes | None:
        """The server's second message; None: it was another password. Raises ValueError."""
        assert self._verifier is not None, "the challenge comes first"
        final = ClientFinal.parse(message, self.first.header)
        if not hmac.compare_digest(final.nonce.encode(), self._nonce.encode()):
            raise ValueError("the nonce is another one")
        messages = b",".join((self.first.bare, self._challenge, final.without_proof))
        if not self._verifier.accepts(final.proof, messages):
            return None
        return b"v=" + in_base64(self._verifier.signature(messages)).encode()


def fields(message: bytes) -> list[str]:
    """What stands between the commas. Raises ValueError."""
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
    """The values of the first two parts, which have these names. Raises ValueError."""
    if len(parts) < len(names):
        raise ValueError("the message has too few parts")
    return [value_of(name, part) for name, part in zip(names, parts, strict=False)]


def value_of(name: str, part: str) -> str:
    if not part.startswith(f"{name}="):
        raise ValueError(f"there is no {name}= where one belongs")
    return part[2:]


def sasl_name(text: str) -> str:
    """A name with its commas and equals signs again (RFC 5802, section 5.1). Raises ValueError."""
    if not text:
        raise ValueError("a name is empty")

    def plain(found: re.Match[str]) -> str:
        if found[0] == "=":
            raise ValueError("a name has an equals sign that is none of =2C and =3D")
        return "," if found[0] == "=2C" else "="

    return ESCAPE.sub(plain, text)


def from_base64(text: str) -> bytes:
    """Raises ValueError."""
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        raise ValueError("what should be base64 is not") from None


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
    """A password as both sides spell it; as it is, where the rules have no spelling for it."""
    if password.isascii():
        return password  # what they prohibit of ASCII is as it is
    try:
        return saslprep(password.decode()).encode()
    except ValueError:
        return password


def saslprep(text: str) -> str:
    """Raises ValueError (RFC 4013; what is not assigned in Unicode 3.2 is prohibited, as in a stored string)."""
    spaced = (" " if stringprep.in_table_c12(each) else each for each in text)
    mapped = "".join(each for each in spaced if not stringprep.in_table_b1(each))
    normal = unicodedata.ucd_3_2_0.normalize("NFKC", mapped)
    if any(is_in(each) for each in normal for is_in in PROHIBITED):
        raise ValueError("there is a character in it that may not be in a password")
    _check_directions(normal)
    return normal


def _check_directions(text: str) -> None:
    """RFC 3454, section 6."""
    if not any(map(stringprep.in_table_d1, text)):
        return
    ends_well = stringprep.in_table_d1(text[0]) and stringprep.in_table_d1(text[-1])
    if not ends_well or any(map(stringprep.in_table_d2, text)):
        raise ValueError("it is written in two directions")
