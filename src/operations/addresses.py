"""Which addresses we send to when others name them: none inside our own network. Pure."""

import ipaddress
from urllib.parse import urlsplit

URL_CHARACTERS_MAX = 2048


class AddressRefused(ValueError):
    """We do not send there."""


def check_address(url: str, *, allow_http: bool, allow_private: bool) -> None:
    """Raises AddressRefused for a URL that is not one of a public HTTPS server.

    A name is judged again, by its addresses, at the moment of each connection: see `is_allowed`.
    """
    try:
        parts = urlsplit(url)
        host, port = parts.hostname, parts.port
    except ValueError:
        raise AddressRefused("This is no URL") from None
    if not url.isascii() or not url.isprintable() or " " in url or len(url) > URL_CHARACTERS_MAX:
        raise AddressRefused("A URL has up to 2048 visible ASCII characters")
    if parts.scheme != "https" and not (allow_http and parts.scheme == "http"):
        raise AddressRefused("Only https is allowed")
    if not host or port == 0:
        raise AddressRefused("The URL names no server")
    if parts.username is not None or parts.password is not None or parts.fragment:
        raise AddressRefused("The URL holds credentials or a fragment")
    if not allow_private and not _may_be_public(host):
        raise AddressRefused("Addresses inside a private network are not allowed")


def is_allowed(address: str, *, allow_private: bool) -> bool:
    """Whether a connection to this IP address may be made."""
    if allow_private:
        return True
    try:
        found = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return False
    inner = getattr(found, "ipv4_mapped", None) or getattr(found, "sixtofour", None) or found
    return inner.is_global and found.is_global and not inner.is_multicast


def _may_be_public(host: str) -> bool:
    """An address has to be a public one. A name may be one: only its addresses tell. What spells an
    address in another way (`0x7f.1`, `2130706433`) is no name."""
    try:
        ipaddress.ip_address(host)
    except ValueError:
        last = host.rstrip(".").rpartition(".")[2].lower()
        spelled = last.isdecimal() or last.startswith("0x")
        return not spelled and last not in {"localhost", "local", "internal"} and "." in host
    return is_allowed(host, allow_private=False)
