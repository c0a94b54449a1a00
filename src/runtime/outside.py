"""The outside world that the settings describe: one client per provider name."""

from collections.abc import Callable

from operations.guarantees import ProviderProfile
from providers.catalogue import simulated_providers
from providers.contract import Provider
from providers.smtp import Security, smtp_mail
from providers.stripe import stripe_payments
from providers.stripe_objects import ChargeApi
from runtime.profiles import adjusted
from runtime.settings import Settings

Adjust = Callable[[ProviderProfile], ProviderProfile]


def provider_clients(settings: Settings) -> dict[str, Provider]:
    """A client for every provider, each to be closed. Raises ValueError for unusable settings."""

    def adjust(profile: ProviderProfile) -> ProviderProfile:
        return adjusted(profile, settings.provider_profiles)

    clients = simulated_providers(
        {
            "payments": settings.payments_url,
            "acquirer": settings.acquirer_url,
            "warehouse": settings.warehouse_url,
            "carrier": settings.carrier_url,
            "mail": settings.mail_url,
        },
        acquirer_blind=settings.acquirer_blind,
        adjust=adjust,
    )
    if settings.payments == "stripe":
        clients["payments"] = _stripe(settings, adjust)
    if settings.mail == "smtp":
        clients["mail"] = _smtp(settings, adjust)
    return clients


def _stripe(settings: Settings, adjust: Adjust) -> Provider:
    assert settings.stripe_api_key is not None
    return stripe_payments(
        api_key=settings.stripe_api_key.get_secret_value(),
        base_url=settings.stripe_url,
        account=settings.stripe_account,
        api=ChargeApi(settings.stripe_api),
        idempotency_keys=settings.stripe_idempotency_keys,
        filters_by_creation=settings.stripe_filters_by_creation,
        adjust=adjust,
    )


def _smtp(settings: Settings, adjust: Adjust) -> Provider:
    assert settings.smtp_host is not None
    assert settings.smtp_sender is not None
    password = settings.smtp_password
    return smtp_mail(
        host=settings.smtp_host,
        port=settings.smtp_port,
        security=Security(settings.smtp_security),
        username=settings.smtp_username,
        password=None if password is None else password.get_secret_value(),
        sender=settings.smtp_sender,
        domain=settings.smtp_domain,
        adjust=adjust,
    )
