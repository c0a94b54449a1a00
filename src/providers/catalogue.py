"""The providers of the simulated world, by name: what the composition root hands to the steps."""

from collections.abc import Callable, Mapping

from operations.guarantees import ProviderProfile
from providers import acquirer, carrier, mail, payments, warehouse
from providers.contract import Provider


def simulated_profiles(*, acquirer_blind: bool = False) -> dict[str, ProviderProfile]:
    """What each simulated provider promises; a blind acquirer does not offer its records."""
    profiles = (
        payments.PROFILE,
        acquirer.PROFILE_BLIND if acquirer_blind else acquirer.PROFILE,
        warehouse.PROFILE,
        carrier.PROFILE,
        mail.PROFILE,
    )
    return {profile.provider: profile for profile in profiles}


def simulated_providers(
    urls: Mapping[str, str],
    *,
    token: str | None = None,
    acquirer_blind: bool = False,
    adjust: Callable[[ProviderProfile], ProviderProfile] = lambda profile: profile,
) -> dict[str, Provider]:
    """A client of every simulated provider, by the address that `urls` has under its name.

    `urls` may name more, such as `admin`. Each client is to be closed by who asked for it.
    `adjust` puts a deployment's own figures into a profile.
    Raises KeyError, naming the provider that `urls` lacks.
    """
    profiles = simulated_profiles(acquirer_blind=acquirer_blind)
    clients = {
        "payments": payments.SimulatedPayments,
        "acquirer": acquirer.SimulatedAcquirer,
        "warehouse": warehouse.SimulatedWarehouse,
        "carrier": carrier.SimulatedCarrier,
        "mail": mail.SimulatedMail,
    }
    return {
        name: client(urls[name], profile=adjust(profiles[name]), token=token)
        for name, client in clients.items()
    }
