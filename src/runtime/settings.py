"""Settings: environment variables with the prefix `TALLYSTICK_`. The README's table names each."""

from typing import Annotated, Literal, Self, get_args

from pydantic import Field, SecretStr, model_validator
from pydantic_settings import BaseSettings, NoDecode, SettingsConfigDict

from providers.webhook_signatures import is_secret
from runtime.codec import PayloadKeys
from runtime.profiles import ProfileOverride

ProviderName = Literal["payments", "acquirer", "warehouse", "carrier", "mail"]


class Settings(BaseSettings):
    """What a deployment chooses. Every field has its bound, and a default where one is safe."""

    model_config = SettingsConfigDict(
        env_prefix="TALLYSTICK_",
        extra="ignore",
        use_attribute_docstrings=True,
        hide_input_in_errors=True,  # it holds secrets
    )

    database_url: SecretStr = SecretStr("postgresql://tallystick@127.0.0.1:5432/tallystick")
    """`postgresql://user:password@host:port/database`."""
    database_connections: Annotated[int, Field(ge=2, le=200)] = 16
    """Connections per process."""
    database_wait_seconds: Annotated[float, Field(gt=0, le=60)] = 3.0
    """How long a request waits for a connection before it gets 503."""

    temporal_address: str = "127.0.0.1:7233"
    """`host:port` of the Temporal frontend."""
    temporal_namespace: str = "default"
    """The namespace that holds the runs."""
    temporal_api_key: SecretStr | None = None
    """For Temporal Cloud."""
    temporal_tls: bool = False
    """Whether to speak TLS to Temporal."""
    temporal_task_queue: str = "tallystick"
    """API and workers of one deployment share it."""
    payload_keys: SecretStr | None = None
    """Encrypts what Temporal keeps: `id:base64key,id:base64key`, 32 bytes each. The first encrypts,
    all decrypt. The API and every worker need the same ones."""
    temporal_ui_url: str | None = None
    """Where people see runs; links in the API point there."""

    api_host: str = "127.0.0.1"
    """The address that the API listens on."""
    api_port: Annotated[int, Field(ge=0, le=65535)] = 8000
    """Its port; 0 picks a free one."""
    api_body_bytes: Annotated[int, Field(ge=1024, le=16 * 1024 * 1024)] = 256 * 1024
    """The largest request body."""
    api_cors_origins: Annotated[tuple[str, ...], NoDecode] = ()
    """Origins of web pages that may call the API, separated by commas."""
    api_new_operations_per_second: Annotated[float, Field(ge=0)] = 0.0
    """Per tenant and process; 0 is no limit."""
    api_new_operations_burst: Annotated[int, Field(ge=1, le=100_000)] = 100
    """How many of them may come at once."""

    extra_operations: Annotated[tuple[str, ...], NoDecode] = ()
    """Modules with a team's own operations, separated by commas; see `runtime.offering`."""

    worker_health_port: Annotated[int, Field(ge=0, le=65535)] = 8001
    """Where a worker answers `/readyz` and `/metrics`."""
    worker_concurrent_steps: Annotated[int, Field(ge=1, le=2000)] = 200
    """Provider calls that one worker makes at a time."""
    worker_drain_seconds: Annotated[float, Field(ge=0, le=600)] = 20.0
    """How long a worker that is stopped waits for calls in flight: longer than any provider's
    timeout, or their results are lost."""

    worker_deployment_name: str | None = None
    """With `worker_build_id`: Temporal keeps each run on workers whose code can replay it; see
    `docs/deploying.md`. Off by default: one build at a time, as on a developer's machine."""
    worker_build_id: str | None = None
    """Names this build, such as a commit: new for every change of a workflow."""
    worker_versioning: Literal["pinned", "auto_upgrade"] = "pinned"
    """`pinned`: a run ends on the build it began with. `auto_upgrade`: it moves to the current one,
    which must be able to replay it."""

    payments: Literal["simulated", "stripe"] = "simulated"
    """Who takes the money."""
    payments_url: str = "http://127.0.0.1:9001"
    """The simulated payment provider."""
    acquirer_url: str = "http://127.0.0.1:9002"
    """The simulated legacy acquirer."""
    acquirer_blind: bool = False
    """Whether the acquirer cannot be asked either: its unknown outcomes are parked."""
    warehouse_url: str = "http://127.0.0.1:9003"
    """The simulated warehouse."""
    carrier_url: str = "http://127.0.0.1:9004"
    """The simulated carrier."""
    mail: Literal["simulated", "smtp"] = "simulated"
    """Who delivers mail."""
    mail_url: str = "http://127.0.0.1:9005"
    """The simulated mail provider."""

    stripe_api_key: SecretStr | None = None
    """Needed with `payments=stripe`."""
    stripe_url: str = "https://api.stripe.com"
    """Where Stripe, or a server compatible with it, is."""
    stripe_account: str | None = None
    """A connected account: pinned on every operation, and sent as `Stripe-Account`."""
    stripe_api: Literal["payment_intents", "charges"] = "payment_intents"
    """Which of Stripe's interfaces charges."""
    stripe_idempotency_keys: bool = True
    """false for a Stripe-compatible server that keeps no keys: it is looked up instead."""
    stripe_filters_by_creation: bool = True
    """false for a Stripe-compatible server whose lists cannot be narrowed by time."""

    smtp_host: str | None = None
    """Needed with `mail=smtp`, as is the sender."""
    smtp_port: Annotated[int, Field(ge=1, le=65535)] = 587
    """The submission port."""
    smtp_security: Literal["starttls", "tls", "none"] = "starttls"
    """A login is refused without TLS."""
    smtp_username: str | None = None
    """For the submission server's login."""
    smtp_password: SecretStr | None = None
    """For the same."""
    smtp_sender: str | None = None
    """The address that mail comes from."""
    smtp_domain: str | None = None
    """Of Message-IDs; the sender's by default."""

    provider_profiles: dict[ProviderName, ProfileOverride] = {}
    """JSON: `{"payments": {"key_lifetime_seconds": 43200}}`. A provider's own figures instead of
    the shipped ones. New operations are pinned to them; running ones keep what they began with."""

    reconciliation_every_seconds: Annotated[int, Field(ge=0, le=604_800)] = 900
    """How often a provider is reconciled that no operator has set a schedule for; 0 is never."""

    webhook_secrets: dict[str, SecretStr | tuple[SecretStr, ...]] = {}
    """JSON: `{"stripe": "whsec_…", "payments": ["whsec_new", "whsec_old"]}`. By provider, what its
    webhooks are signed with; several while they are changed."""
    endpoints_allow_http: bool = False
    """Whether events may be sent to tenants' endpoints without TLS: for tests on one machine."""
    endpoints_allow_private: bool = False
    """Whether endpoints may be in a private network: then tenants can reach what is in it."""

    log_format: Literal["json", "console"] = "json"
    """JSON for machines, console for people."""
    log_level: Literal["debug", "info", "warning", "error"] = "info"
    """What is logged."""

    @model_validator(mode="before")
    @classmethod
    def _split_lists(cls, values: dict[str, object]) -> dict[str, object]:
        split = dict(values)
        for name in ("api_cors_origins", "extra_operations"):
            given = values.get(name)
            if isinstance(given, str):
                split[name] = tuple(part.strip() for part in given.split(",") if part.strip())
        return split

    @property
    def webhook_secrets_by_name(self) -> dict[str, tuple[str, ...]]:
        """What webhooks are signed with. Of a provider of ours without a secret, none counts."""
        names = ("stripe", *get_args(ProviderName), *self.webhook_secrets)
        return {name: self._secrets_of(name) for name in names}

    def _secrets_of(self, name: str) -> tuple[str, ...]:
        given = self.webhook_secrets.get(name, ())
        secrets = (given,) if isinstance(given, SecretStr) else given
        return tuple(secret.get_secret_value() for secret in secrets)

    @model_validator(mode="after")
    def _check(self) -> Self:
        scheme = self.database_url.get_secret_value().partition("://")[0]
        if scheme not in {"postgresql", "postgres"}:
            raise ValueError("TALLYSTICK_DATABASE_URL must begin with postgresql://")
        if self.payload_keys is not None:
            try:
                PayloadKeys.parse(self.payload_keys.get_secret_value())
            except ValueError as error:
                raise ValueError(f"TALLYSTICK_PAYLOAD_KEYS: {error}") from None
        for name, secrets in self.webhook_secrets_by_name.items():
            if not all(is_secret(secret, standard=name != "stripe") for secret in secrets):
                raise ValueError(f"TALLYSTICK_WEBHOOK_SECRETS: {name}'s is not whsec_ and base64")
        if self.payments == "stripe" and self.stripe_api_key is None:
            raise ValueError("TALLYSTICK_PAYMENTS=stripe needs TALLYSTICK_STRIPE_API_KEY")
        if self.mail == "smtp" and (self.smtp_host is None or self.smtp_sender is None):
            raise ValueError(
                "TALLYSTICK_MAIL=smtp needs TALLYSTICK_SMTP_HOST and TALLYSTICK_SMTP_SENDER"
            )
        if (self.worker_deployment_name is None) != (self.worker_build_id is None):
            raise ValueError(
                "TALLYSTICK_WORKER_DEPLOYMENT_NAME and TALLYSTICK_WORKER_BUILD_ID go together"
            )
        return self
