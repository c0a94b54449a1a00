"""The charges service behind asgi-idempotency-header, set up as its README does."""

# pyright: reportMissingImports=false, reportUnknownVariableType=false
from charges import make
from fakeredis import FakeAsyncRedis
from idempotency_header_middleware import IdempotencyHeaderMiddleware
from idempotency_header_middleware.backends import RedisBackend

app = make()
app.add_middleware(
    IdempotencyHeaderMiddleware,  # pyright: ignore[reportUnknownArgumentType]
    backend=RedisBackend(redis=FakeAsyncRedis()),
)
