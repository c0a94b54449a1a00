"""The floors: FastAPI and asyncpg, one row read or inserted per request, and nothing else."""

import os
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Annotated

import asyncpg
from charging import serve
from fastapi import FastAPI, Header, Request, Response

_TABLE = """
CREATE TABLE IF NOT EXISTS floor (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    key text NOT NULL UNIQUE,
    body bytea NOT NULL,
    created_at timestamptz NOT NULL DEFAULT now()
)
"""


@asynccontextmanager
async def lifespan(app: FastAPI) -> AsyncGenerator[None]:
    """A pool of as many connections as ours has."""
    async with asyncpg.create_pool(
        os.environ["BENCH_DATABASE_URL"], min_size=1, max_size=16
    ) as pool:
        await pool.execute(_TABLE)
        app.state.pool = pool
        yield


app = FastAPI(lifespan=lifespan)


@app.get("/rows/{key}")
async def read(request: Request, key: str) -> Response:
    """One row by its key."""
    body = await request.app.state.pool.fetchval("SELECT body FROM floor WHERE key = $1", key)
    return Response(body or b"", media_type="application/json")


@app.post("/rows", status_code=201)
async def insert(request: Request, idempotency_key: Annotated[str, Header()]) -> Response:
    """One row under a new key."""
    body = await request.body()
    await request.app.state.pool.execute(
        "INSERT INTO floor (key, body) VALUES ($1, $2)", idempotency_key, body
    )
    return Response(body, status_code=201, media_type="application/json")


if __name__ == "__main__":
    serve(app)
