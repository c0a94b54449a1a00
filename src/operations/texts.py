"""Strings that requests share. One line each: no control characters, nothing empty."""

from typing import Annotated

from pydantic import Field

LineOfText = Annotated[str, Field(min_length=1, max_length=500, pattern=r"^[^\x00-\x1f\x7f]+$")]
"""One line of text."""

Card = Annotated[
    str, Field(min_length=1, max_length=255, pattern=r"^[\x21-\x7e]+$", examples=["tok_visa"])
]
"""A card token issued by the payment provider; never a card number."""

EmailAddress = Annotated[
    str,
    Field(
        max_length=254, pattern=r"^[^@\s\x00-\x1f]+@[^@\s\x00-\x1f]+$", examples=["a@example.org"]
    ),
]
"""An address to deliver to; whether it exists, delivery will tell (RFC 5321, section 4.5.3.1)."""
