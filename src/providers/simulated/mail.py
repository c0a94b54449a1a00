"""The simulated mail service: BLIND. It accepts, and tells nothing afterwards.

| request | answers |
|---|---|
| `POST /messages` | 202; 422 `recipient_refused` by the fault `decline` only |

The same message twice is two messages. Its ledger keeps the part of `message_id` before the `@` as
the reference.
"""

from typing import Annotated

from pydantic import Field

from providers.simulated.books import Pages
from providers.simulated.service import Action, Decision, Draft, Form, Service, Text
from providers.simulated.vocabulary import ProviderName
from providers.simulated.wire import refusal


class Message(Form):
    """The body of `POST /messages`."""

    to: Annotated[str, Field(pattern=r"^[^@\s]+@[^@\s]+$", max_length=320)]
    subject: Annotated[str, Field(max_length=998)]
    """RFC 5322, section 2.1.1 bounds a line."""
    text: Text
    message_id: Annotated[str, Field(pattern=r"^<[^<>@\s]{1,64}@[^<>@\s]+>$", max_length=255)]

    @property
    def own_reference(self) -> str:
        """The left part of the message ID."""
        return self.message_id.removeprefix("<").partition("@")[0]


def _send(_: Pages, __: Message) -> Decision:
    return Draft(state="accepted")


SERVICE = Service(
    name=ProviderName.MAIL,
    records_path=None,
    actions=(
        Action(
            "send",
            "/messages",
            "msg",
            Message,
            _send,
            refusal(422, "recipient_refused", "the recipient's server refused the address"),
            success_status=202,
        ),
    ),
)
