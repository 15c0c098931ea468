"""Names in a certificate: its subject as Java prints it (P-241), and its alternative names. Pure.

Principals of clients are made of the subject, so it must be what `X500Principal.getName()` returns in Apache Kafka:
RFC 2253, from the last to the first part, with keywords for nine attributes; any other attribute is its number with
the encoded value in hexadecimal.
"""

from __future__ import annotations

from pykbroker.named_tuple import NamedTuple
from pykbroker.security.tls.der import (
    CONTEXT_0,
    CONTEXT_3,
    OBJECT_IDENTIFIER,
    SEQUENCE,
    DerError,
    Element,
    dotted,
    parse,
)

_KEYWORDS = {
    "2.5.4.3": "CN",
    "2.5.4.6": "C",
    "2.5.4.7": "L",
    "2.5.4.8": "ST",
    "2.5.4.9": "STREET",
    "2.5.4.10": "O",
    "2.5.4.11": "OU",
    "0.9.2342.19200300.100.1.1": "UID",
    "0.9.2342.19200300.100.1.25": "DC",
}
_SUBJECT_ALT_NAME = "2.5.29.17"
_IP_ADDRESS = 7
_ESCAPED = frozenset(',=+<>#;"\\')
# Types of strings that Java prints as text, whatever their encoding is, as if it were UTF-8: UTF8String,
# PrintableString, T61String, IA5String, GeneralString, BMPString.
_STRINGS = frozenset((0x0C, 0x13, 0x14, 0x16, 0x1B, 0x1E))


class CertificateNames(NamedTuple):
    """Subject and alternative names of a certificate.

    Attributes:
        subject: distinguished name as Java prints it, such as ``CN=alice,O=Example``; "" for an empty subject.
        alternative_names: encoded general names.
    """

    subject: str
    alternative_names: frozenset[bytes]


def names_of(certificate: bytes) -> CertificateNames:
    """Names of a certificate in DER.

    Raises:
        DerError: the bytes are not a certificate.
    """
    fields = _first(parse(certificate)).children()
    if fields and fields[0].tag == CONTEXT_0:
        # The version, which the first version of certificates does not have.
        del fields[0]
    if len(fields) < 6:
        raise DerError("is not a certificate")
    extensions = next((field for field in fields[6:] if field.tag == CONTEXT_3), None)
    return CertificateNames(_name(fields[4]), frozenset() if extensions is None else _alternative_names(extensions))


def _first(element: Element) -> Element:
    children = element.children() if element.tag & 0x20 else []
    if not children:
        raise DerError("is not a certificate")
    return children[0]


def _name(name: Element) -> str:
    if name.tag != SEQUENCE:
        raise DerError("has no subject")
    return ",".join("+".join(map(_attribute, part.children())) for part in reversed(name.children()))


def _attribute(attribute: Element) -> str:
    pair = attribute.children()
    if len(pair) != 2 or pair[0].tag != OBJECT_IDENTIFIER:
        raise DerError("has a malformed attribute in its subject")
    identifier, value = dotted(pair[0].content), pair[1]
    keyword = _KEYWORDS.get(identifier)
    if keyword is None or value.tag not in _STRINGS:
        return f"{keyword or identifier}=#{value.encoded.hex()}"
    return f"{keyword}={_escaped(value.content.decode('utf-8', 'replace'))}"


def _escaped(text: str) -> str:
    parts = ["\\00" if c == "\0" else f"\\{c}" if c in _ESCAPED else c for c in text]
    inner = text.strip(" \r")
    lead = len(text) - len(text.lstrip(" \r"))
    trail = lead + len(inner)
    for index in (*range(lead), *range(trail, len(text))):
        parts[index] = f"\\{text[index]}"
    return "".join(parts)


def _alternative_names(extensions: Element) -> frozenset[bytes]:
    for extension in _first(extensions).children():
        parts = extension.children()
        if len(parts) >= 2 and parts[0].tag == OBJECT_IDENTIFIER and dotted(parts[0].content) == _SUBJECT_ALT_NAME:
            # The last part is an octet string with the names, after an optional flag.
            return frozenset(name.encoded for name in parse(parts[-1].content).children())
    return frozenset()


def shown_name(name: bytes) -> str:
    """An encoded general name as people read it; one that is no address and no text in hexadecimal."""
    from ipaddress import ip_address  # only errors show names

    element = parse(name)
    content = element.content
    if element.tag & 0x1F == _IP_ADDRESS and len(content) in (4, 16):
        return str(ip_address(content))
    text = content.decode("latin-1")
    return text if text.isascii() and text.isprintable() else content.hex()
