"""Which client stands behind which provider name."""

from collections.abc import Mapping

from providers import acquirer
from providers.acquirer import SimulatedAcquirer
from providers.carrier import SimulatedCarrier
from providers.contract import Provider
from providers.mail import SimulatedMail
from providers.payments import SimulatedPayments
from providers.warehouse import SimulatedWarehouse


def simulated_providers(
    urls: Mapping[str, str], *, acquirer_blind: bool = False
) -> dict[str, Provider]:
    """Clients of the simulated world; `urls` names payments, acquirer, warehouse, carrier, mail."""
    profile = acquirer.PROFILE_BLIND if acquirer_blind else acquirer.PROFILE
    return {
        "payments": SimulatedPayments(urls["payments"]),
        "acquirer": SimulatedAcquirer(urls["acquirer"], profile=profile),
        "warehouse": SimulatedWarehouse(urls["warehouse"]),
        "carrier": SimulatedCarrier(urls["carrier"]),
        "mail": SimulatedMail(urls["mail"]),
    }
