"""Turn a listener's settings into TLS for its connections: certificates, their reload and expiry, and the outcome.

`Certificates` holds the contexts of one listener. Every connection begins with the current ones; a reload makes new
ones, and existing connections keep the old. If something cannot be read, everything stays as it was.
"""

from __future__ import annotations

import logging
import re
import ssl
from calendar import timegm
from collections.abc import Iterable, Iterator, Mapping
from hashlib import sha256
from pathlib import Path
from time import strptime
from typing import Final

from leveret.config.config import ConfigError
from leveret.config.tls import CertificateSettings, PeerTlsSettings, TlsSettings
from leveret.config.types import Place, printed
from leveret.front_end import TlsFacts

log: Final = logging.getLogger("leveret.node")

# of PEM (RFC 7468), and of the older form of keys (RFC 1421)
CERTIFICATE: Final = "CERTIFICATE-----"
PRIVATE_KEY: Final = "PRIVATE KEY-----"
ENCRYPTED: Final = "ENCRYPTED"

VERSIONS: Final = {"1.2": ssl.TLSVersion.TLSv1_2, "1.3": ssl.TLSVersion.TLSv1_3}
ASKING: Final = {
    "none": ssl.CERT_NONE,
    "optional": ssl.CERT_OPTIONAL,
    "required": ssl.CERT_REQUIRED,
}
Names = Iterable[tuple[str, str]]  # the parts of a certificate's subject, or its alternative names


class Certificates:
    """The certificates of one listener; `where` is its path in the settings, for error texts."""

    def __init__(self, settings: TlsSettings, where: str) -> None:
        """Read the certificates. Raises ConfigError if a file cannot be read or used."""
        self.settings = settings
        self.where = where
        self.is_new = False  # the last reload has found other files
        self.context = self._read()
        self._digest = self._digested()
        self.expires_at = self._first_end()  # seconds since the epoch; None if unknown

    def reload(self) -> bool:
        """Read the files again, for new connections. Returns False if there are problems; then the old ones stay."""
        before, self.is_new = self._digest, False
        try:
            self.context = self._read()
            self.expires_at = self._first_end()
        except ConfigError as failure:
            problems = "; ".join(map(str, failure.problems))
            log.error("certificates not reloaded, those from before stay: %s", problems)
            return False
        self._digest = self._digested()
        self.is_new = self._digest != before
        return True

    def _digested(self) -> str:
        """Return a digest of the files, which is another one if a certificate, a key or a CA is."""
        made = sha256()
        for entry in (self.settings, *self.settings.server_names.values()):
            for path in (entry.certificate, entry.private_key):
                made.update(path.read_bytes())
        if self.settings.ca is not None:
            made.update(self.settings.ca.read_bytes())
        return made.hexdigest()

    def _first_end(self) -> float | None:
        entries = (self.settings, *self.settings.server_names.values())
        return first_to_expire([entry.certificate for entry in entries])

    def _read(self) -> ssl.SSLContext:
        """Return a context that chooses among the certificates by server name. Raises ConfigError."""
        place = Place([], self.where)
        settings = self.settings
        context = _context(settings, settings, place)
        others = {
            name.lower(): _context(settings, entry, place.at("server_names").at(name))
            for name, entry in settings.server_names.items()
        }
        if place.problems:
            raise ConfigError(place.problems)

        def choose(tls: ssl.SSLObject, name: str | None, _: ssl.SSLContext) -> None:
            chosen = None if name is None else others.get(name.lower())
            if chosen is not None:
                tls.context = chosen

        if others:
            context.sni_callback = choose
        return context

    def facts(self, tls: ssl.SSLObject) -> TlsFacts:
        """Return version, cipher and client certificate of a completed handshake."""
        cipher = tls.cipher()
        version, name = tls.version() or "", "" if cipher is None else cipher[0]
        certificate = tls.getpeercert()
        if not certificate:
            return TlsFacts(version, name)
        return TlsFacts(
            version, name, distinguished_name(certificate), login(certificate, self.settings.login_from)
        )


def _context(settings: TlsSettings, entry: CertificateSettings, place: Place) -> ssl.SSLContext:
    """Return a context for one certificate, with the listener's common settings. Problems go to `place`."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = VERSIONS[settings.minimum_version]
    context.options |= ssl.OP_NO_RENEGOTIATION
    _load_own(context, entry, place)
    if settings.ca is not None:
        _load_client_ca(context, settings.ca, place)
        context.num_tickets = 0  # a resumed session would skip the certificate, which may have expired
    context.verify_mode = ASKING[settings.client_certificate]
    return context


def context_of(settings: PeerTlsSettings) -> ssl.SSLContext:
    """Return a context for connections to a server that the node asks. Raises OSError (also ssl.SSLError)."""
    context = ssl.create_default_context(cafile=settings.ca)
    context.minimum_version = VERSIONS[settings.minimum_version]
    if settings.certificate is not None:
        # An empty password: without it, OpenSSL would ask at the terminal.
        context.load_cert_chain(settings.certificate, settings.private_key, "")
    return context


def _load_own(context: ssl.SSLContext, entry: CertificateSettings, place: Place) -> None:
    password = entry.key_password or ""  # an empty one: without it, OpenSSL would ask at the terminal
    if entry.key_password_file is not None:
        password = _text_in(entry.key_password_file, place.at("key_password_file"), "a file with a password")
    certificate = _text_in(
        entry.certificate, place.at("certificate"), "a certificate in a file that can be read"
    )
    key = _text_in(entry.private_key, place.at("key"), "a private key in a file that can be read")
    if not (certificate and key):
        return
    password = password.removesuffix("\n").removesuffix("\r")
    try:
        context.load_cert_chain(entry.certificate, entry.private_key, password)
    except (ssl.SSLError, ValueError, OSError) as error:
        if _told_of_contents(entry, certificate, key, bool(password), place):
            return
        accepted = "a certificate (PEM), and in `key` the private key that belongs to it"
        if entry.key_password or entry.key_password_file:
            accepted += ", with its password"
        place.at("certificate").refuse(f"{printed(entry.certificate)} ({reason(error)})", accepted)


def _told_of_contents(
    entry: CertificateSettings, certificate: str, key: str, has_password: bool, place: Place
) -> bool:
    """Report what a look into the files of a certificate explains, of which OpenSSL says no more than `PEM lib`."""
    if CERTIFICATE not in certificate:
        found = f"{printed(entry.certificate)} (no certificate is in it)"
        place.at("certificate").refuse(found, "a certificate (PEM)")
    elif PRIVATE_KEY not in key:
        place.at("key").refuse(
            f"{printed(entry.private_key)} (no private key is in it)", "a private key (PEM)"
        )
    elif ENCRYPTED in key and not has_password:
        found = f"{printed(entry.private_key)} (it is encrypted)"
        place.at("key").refuse(found, "a private key that is not, or its password in `key_password_file`")
    else:
        return False
    return True


def _load_client_ca(context: ssl.SSLContext, path: Path, place: Place) -> None:
    if not _text_in(path, place.at("ca"), "CA certificates in a file that can be read"):
        return
    try:
        context.load_verify_locations(path)
    except (ssl.SSLError, OSError) as error:
        place.at("ca").refuse(f"{printed(path)} ({reason(error)})", "certificates of CAs (PEM)")


def _text_in(path: Path, place: Place, accepted: str) -> str:
    """Return a file's text; empty if it cannot be read or has none, which is reported to `place`."""
    try:
        if text := path.read_text():
            return text
        place.refuse(f"{printed(path)} (it is empty)", accepted)
    except OSError as error:
        place.refuse(f"{printed(path)} ({(error.strerror or 'an error').lower()})", accepted)
    except UnicodeDecodeError:
        place.refuse(f"{printed(path)} (it is not text)", accepted)
    return ""


def reason(error: Exception) -> str:
    """Return the reason why TLS failed or ended, in words."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"certificate verification failed: {error.verify_message}"
    if isinstance(error, ssl.SSLError) and error.reason:
        return error.reason.lower().replace("_", " ")
    return str(error.args[-1]) if error.args else type(error).__name__


# The client's name.


SHORT: Final = {
    "commonName": "CN",
    "localityName": "L",
    "stateOrProvinceName": "ST",
    "organizationName": "O",
    "organizationalUnitName": "OU",
    "countryName": "C",
    "streetAddress": "STREET",
    "domainComponent": "DC",
    "userId": "UID",
}
ALTERNATIVES: Final = {"san_dns": "DNS", "san_email": "email", "san_uri": "URI", "san_ip": "IP Address"}

Certificate = Mapping[str, object]  # as `getpeercert` returns it


def login(certificate: Certificate, source: str) -> str | None:
    """Return the user's name in a certificate; None if it has no name of that kind, or an ambiguous one."""
    if source == "distinguished_name":
        return distinguished_name(certificate) or None
    if source == "common_name":
        names = [value for part in _subject(certificate) for kind, value in part if kind == "commonName"]
        return names[0] if len(names) == 1 else None
    return next((value for kind, value in _alternatives(certificate) if kind == ALTERNATIVES[source]), None)


def distinguished_name(certificate: Certificate) -> str:
    """Return the subject as RFC 4514 writes it, its last part first: `CN=shop,O=Hare`."""
    parts = reversed(tuple(_subject(certificate)))
    return ",".join(
        "+".join(f"{SHORT.get(kind, kind)}={_escaped(value)}" for kind, value in p) for p in parts
    )


def _escaped(value: str) -> str:
    escaped = re.sub(r'([,+"\\<>;])', r"\\\1", value).replace("\0", "\\00")
    if escaped[:1] in ("#", " "):
        escaped = "\\" + escaped
    return escaped[:-1] + "\\ " if value[1:].endswith(" ") else escaped


def _subject(certificate: Certificate) -> Iterable[Names]:
    return certificate.get("subject", ())  # type: ignore[return-value]


def _alternatives(certificate: Certificate) -> Names:
    return certificate.get("subjectAltName", ())  # type: ignore[return-value]


# Expiry of a certificate: no more of X.509 in DER (RFC 5280, section 4.1) is read than that needs.


BEGIN: Final = "-----BEGIN CERTIFICATE-----"
END: Final = "-----END CERTIFICATE-----"
VERSION_FIELD: Final = 0xA0  # tags
UTC_TIME: Final = 0x17
GENERALIZED_TIME: Final = 0x18
CENTURY: Final = 50  # two-digit years below that are of the 21st century


def first_to_expire(paths: list[Path]) -> float | None:
    """Return when the first certificate of several files expires; files that cannot be read are skipped."""
    found = []
    for path in paths:
        try:
            found.append(expires_at(path.read_text()))
        except (OSError, ValueError, StopIteration):
            continue
    return min(found, default=None)


def expires_at(pem: str) -> float:
    """Return when the first certificate of a file expires, in seconds since the epoch. Raises ValueError."""
    begin = pem.find(BEGIN)
    end = pem.find(END, begin)
    if begin < 0 or end < 0:
        raise ValueError("there is no certificate")
    certificate = _values(ssl.PEM_cert_to_DER_cert(pem[begin : end + len(END)]))
    _, signed = next(_values(next(certificate)[1]))
    fields = [each for each in _values(signed) if each[0] != VERSION_FIELD]
    if len(fields) < 4:
        raise ValueError("it is cut off")
    _, validity = fields[3]  # after serial number, algorithm and issuer
    times = list(_values(validity))
    if len(times) != 2:
        raise ValueError("its validity cannot be read")
    return time_in(*times[1])


def _values(der: bytes) -> Iterator[tuple[int, bytes]]:
    """Yield tags and contents of consecutive DER values. Raises ValueError."""
    at = 0
    while at < len(der):
        if at + 2 > len(der):
            raise ValueError("it is cut off")
        tag, size = der[at], der[at + 1]
        at += 2
        if size >= 0x80:
            octets = size & 0x7F
            size = int.from_bytes(der[at : at + octets])
            at += octets
        if at + size > len(der):
            raise ValueError("it is cut off")
        yield tag, der[at : at + size]
        at += size


def time_in(tag: int, content: bytes) -> float:
    text = content.decode("ascii")
    if tag == UTC_TIME:
        text = ("20" if int(text[:2]) < CENTURY else "19") + text
    elif tag != GENERALIZED_TIME:
        raise ValueError("its validity cannot be read")
    return float(timegm(strptime(text, "%Y%m%d%H%M%SZ")))
