"""The one service that both middlewares are put in front of: POST /charges, GET /charges."""

import asyncio
from typing import Annotated, Literal

from fastapi import Depends, FastAPI, Header, HTTPException, Response
from pydantic import BaseModel, Field

# Long enough for duplicates to overlap.
RUN_SECONDS = 0.05
TENANTS = {"Bearer acme-key": "acme", "Bearer globex-key": "globex"}


class Charge(BaseModel):
    """What is asked for."""

    amount: int = Field(gt=0)
    currency: Literal["EUR", "USD"]
    card: str
    description: str


def tenant(authorization: Annotated[str, Header()] = "") -> str:
    """Who asks; authentication is a dependency, the way FastAPI's tutorial does it."""
    if authorization not in TENANTS:
        raise HTTPException(401, "credentials are missing or unknown")
    return TENANTS[authorization]


def make() -> FastAPI:
    """A new service with no charges."""
    app = FastAPI()
    charges: list[dict[str, object]] = []

    @app.post("/charges", status_code=201)
    async def create(  # pyright: ignore[reportUnusedFunction]
        charge: Charge, response: Response, owner: Annotated[str, Depends(tenant)]
    ) -> dict[str, object]:
        await asyncio.sleep(RUN_SECONDS)
        if charge.card == "declined":
            raise HTTPException(402, "the card was declined")
        created: dict[str, object] = {"id": f"ch_{len(charges)}", **charge.model_dump()}
        charges.append({"tenant": owner, **created})
        response.headers["Location"] = f"/charges/{created['id']}"
        return created

    @app.get("/charges")
    async def books() -> list[dict[str, object]]:  # pyright: ignore[reportUnusedFunction]
        return charges

    return app
