"""Where we do not send, however it is spelled."""

import pytest

from operations.addresses import AddressRefused, check_address, is_allowed


@pytest.mark.parametrize(
    "url",
    [
        "http://example.org/",
        "ftp://example.org/",
        "https://127.0.0.1/",
        "https://2130706433/",
        "https://0x7f.1/",
        "https://127.1/",
        "https://[::1]/",
        "https://[::ffff:10.0.0.1]/",
        "https://[fd00::1]/",
        "https://10.1.2.3/",
        "https://169.254.169.254/latest",
        "https://100.64.0.1/",
        "https://localhost/",
        "https://db.internal/",
        "https://printer.local/",
        "https://intranet/",
        "https://user:password@example.org/",
        "https://example.org/#fragment",
        "https://example.org:0/",
        "https://example.org:99999/",
        "https:///path",
        "https://exa mple.org/",
        "https://example.org/" + "a" * 2048,
    ],
)
def test_no_address_inside_a_network_is_taken(url: str) -> None:
    with pytest.raises(AddressRefused):
        check_address(url, allow_http=False, allow_private=False)


@pytest.mark.parametrize("url", ["https://example.org/in?a=1", "https://1.1.1.1:8443/"])
def test_a_public_https_address_is_taken(url: str) -> None:
    check_address(url, allow_http=False, allow_private=False)


def test_a_closed_network_can_allow_its_own() -> None:
    check_address("http://127.0.0.1:9/", allow_http=True, allow_private=True)


@pytest.mark.parametrize(
    ("address", "allowed"),
    [
        ("1.1.1.1", True),
        ("2606:4700::1111", True),
        ("127.0.0.1", False),
        ("::ffff:127.0.0.1", False),
        ("fe80::1%eth0", False),
        ("224.0.0.1", False),
        ("2002:7f00:1::", False),
        ("0.0.0.0", False),
        ("not an address", False),
    ],
)
def test_what_a_name_stands_for_is_judged_by_its_addresses(address: str, allowed: bool) -> None:
    assert is_allowed(address, allow_private=False) is allowed
    assert is_allowed(address, allow_private=True)
