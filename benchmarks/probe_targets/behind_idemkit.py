"""The charges service behind idemkit, set up as its README does for more than one tenant."""

# pyright: reportMissingImports=false, reportUnknownVariableType=false
# pyright: reportUnknownLambdaType=false, reportUnknownMemberType=false
from charges import make
from fakeredis import FakeAsyncRedis
from idemkit import HttpConfig, IdempotencyMiddleware, RedisBackend

app = make()
app.add_middleware(
    IdempotencyMiddleware,  # pyright: ignore[reportUnknownArgumentType]
    backend=RedisBackend(FakeAsyncRedis()),
    config=HttpConfig(
        scope=lambda request: request.headers.get("authorization", "anonymous"),
        require_key_for_mutations=True,
    ),
)
