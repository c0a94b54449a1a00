"""The operations that run beside a fault."""

from dataclasses import replace
from typing import Any

from support.faults.client import Job

MONEY = {"minor": 2400, "currency": "EUR"}
ORDER: dict[str, Any] = {
    "sku": "MUG-1",
    "quantity": 2,
    "amount": MONEY,
    "card": "tok_visa",
    "email": "a@example.org",
    "address": "1 Quay St",
}
CHARGE: dict[str, Any] = {"amount": MONEY, "card": "tok_visa", "description": "two mugs"}
UNDELIVERABLE = {"address": "UNDELIVERABLE"}
DECLINED = {"card": "tok_declined"}
ACCOUNTS = ("cash", "sales")


def _refund(key: str, minor: int) -> Job:
    amount = {"minor": minor, "currency": "EUR"}
    return Job("payments.refund", key, {"charge_id": "{charge_id}", "amount": amount})


def _transfer(key: str, minor: int) -> dict[str, Any]:
    return {"from": "cash", "to": "sales", "amount": {"minor": minor, "currency": "EUR"}}


def mixed(prefix: str) -> list[Job]:
    """Some of everything that the service offers: sixteen operations."""
    both = f"{prefix}both"
    refunded = Job(
        "payments.charge",
        f"{prefix}charge-refunded",
        CHARGE,
        then=(_refund(f"{prefix}refund-1", 1500), _refund(f"{prefix}refund-2", 1500)),
    )
    return [
        Job("orders.place", f"{prefix}order-1", ORDER, asks_async=True),
        Job("orders.place", f"{prefix}order-2", ORDER, copies=2),
        Job("orders.place", f"{prefix}order-undone", {**ORDER, **UNDELIVERABLE}),
        Job("orders.place", f"{prefix}order-undone-2", {**ORDER, **UNDELIVERABLE}),
        Job("payments.charge", f"{prefix}charge-1", CHARGE, copies=2),
        Job("payments.charge", f"{prefix}charge-2", CHARGE, asks_async=True),
        Job("payments.charge", f"{prefix}charge-declined", {**CHARGE, **DECLINED}),
        Job("payments.charge", both, CHARGE),
        Job("payments.charge", both, {**CHARGE, "description": "of another"}, tenant="globex"),
        refunded,
        Job("payments.charge_legacy", f"{prefix}legacy-1", CHARGE),
        Job("payments.charge_legacy", f"{prefix}legacy-2", CHARGE, asks_async=True),
        Job("accounts.transfer", f"{prefix}transfer-1", _transfer("1", 100), copies=3),
        Job("accounts.transfer", f"{prefix}transfer-2", _transfer("2", 70)),
    ]


def of(operation: str, prefix: str) -> list[Job]:
    """Twelve of one kind, so that the fault meets the guarantee it is meant for."""
    body = ORDER if operation == "orders.place" else CHARGE
    jobs = [Job(operation, f"{prefix}{n:02d}", body) for n in range(12)]
    return [replace(job, asks_async=n % 4 == 0) for n, job in enumerate(jobs)]


def cancelled(prefix: str) -> list[Job]:
    """Orders of which some are cancelled while the outcome of a step is not known."""
    jobs = [Job("orders.place", f"{prefix}{n:02d}", ORDER, asks_async=True) for n in range(10)]
    return [replace(job, cancels=n < 5) for n, job in enumerate(jobs)]


def jobs_of(mix: str, prefix: str) -> list[Job]:
    """The jobs of a mix: `mixed` (`messages` and `reconciled` are the same, in company),
    `cancelled`, or those of the operation of that name."""
    match mix:
        case "mixed" | "messages" | "reconciled":
            return mixed(prefix)
        case "cancelled":
            return cancelled(prefix)
        case _:
            return of(mix, prefix)
