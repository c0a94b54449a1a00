"""What the provider clients promise without a network: frozen bytes, and Retry-After."""

import json
from datetime import UTC, datetime
from typing import Any

import pytest

from providers.http_calls import RETRY_AFTER_MAX_SECONDS, retry_after_seconds
from support.partners import MAIL, PARTNERS, PAYMENTS, Partner

NOW = datetime(2026, 3, 1, 12, 0, 0, tzinfo=UTC)
ADDRESS = "http://127.0.0.1:1"


@pytest.mark.parametrize("partner", PARTNERS, ids=lambda partner: partner.name)
def test_frozen_bytes_depend_on_the_contents_alone(partner: Partner) -> None:
    request = {**partner.request, "reference": "k"}
    backwards = dict(reversed(request.items()))
    one, other = partner.open(ADDRESS), partner.open(ADDRESS)
    assert one.freeze(partner.action, request) == other.freeze(partner.action, backwards)


def test_frozen_bytes_are_these_for_good() -> None:
    """A change of one byte under a running operation would be a key mismatch at the provider."""
    client = PAYMENTS.open(ADDRESS)
    assert (
        PAYMENTS.body(client, "k", description="thé")
        == (
            '{"amount":2400,"currency":"EUR","description":"thé","reference":"k","source":"tok_visa"}'
        ).encode()
    )


@pytest.mark.parametrize(
    "changes",
    [
        {"amount_minor": 24.0},
        {"amount_minor": True},
        {"amount_minor": "2400"},
        {"amount_minor": None},
        {"currency": 978},
        {"reference": None},
        {"tip": 1},
        {"description": "\ud800"},
    ],
)
def test_a_request_that_cannot_be_expressed_is_refused_before_it_is_sent(
    changes: dict[str, Any],
) -> None:
    client = PAYMENTS.open(ADDRESS)
    with pytest.raises(ValueError, match=r"charge needs|charge has no member|surrogates"):
        PAYMENTS.body(client, "k", **changes)


def test_an_action_the_provider_does_not_know_is_refused() -> None:
    with pytest.raises(ValueError, match="mail has no action charge"):
        MAIL.open(ADDRESS).freeze("charge", {})


def test_a_message_carries_our_reference_in_its_id() -> None:
    body = MAIL.body(MAIL.open(ADDRESS), "abc123")
    assert json.loads(body)["message_id"] == "<abc123@tallystick.invalid>"


@pytest.mark.parametrize(
    ("value", "seconds"),
    [
        (None, None),
        ("0", 0),
        (" 120 ", 120),
        ("99999999999999999999", RETRY_AFTER_MAX_SECONDS),
        ("Sun, 01 Mar 2026 12:00:30 GMT", 30),
        ("Sunday, 01-Mar-26 12:00:30 GMT", 30),
        ("Sun, 01 Mar 2026 11:00:00 GMT", 0),
        ("Sun, 01 Mar 2126 12:00:00 GMT", RETRY_AFTER_MAX_SECONDS),
        ("soon", None),
        ("-1", None),
        ("", None),
        ("١٢", None),
        ("Sun, 99 Mar 2026 12:00:00 GMT", None),
    ],
)
def test_retry_after_is_read_in_both_forms(value: str | None, seconds: float | None) -> None:
    assert retry_after_seconds(value, now=NOW) == seconds
