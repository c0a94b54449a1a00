"""`python -m providers.simulated --ledger FILE`: the world as a process of its own."""

import argparse
import sqlite3
import sys
from pathlib import Path

import uvloop
from pydantic import ValidationError

from providers.simulated.desk import sentence
from providers.simulated.server import serve_until_signalled
from providers.simulated.vocabulary import ProviderName, Temperament, WorldConfig


def main() -> None:
    """Read the command line and serve until SIGTERM or SIGINT."""
    parser = argparse.ArgumentParser(prog="python -m providers.simulated", description=__doc__)
    parser.add_argument("--ledger", type=Path, required=True)
    parser.add_argument("--host", default="127.0.0.1")
    for name in ("admin", *ProviderName):
        parser.add_argument(f"--{name}-port", type=int, default=0, help="0 picks a free one")
    parser.add_argument("--temperament", type=Temperament, default=Temperament.CONSISTENT)
    parser.add_argument("--key-lifetime-seconds", type=float, default=86_400.0)
    parser.add_argument("--announce", type=Path)
    arguments = vars(parser.parse_args())
    try:
        config = WorldConfig.model_validate(arguments)
    except ValidationError as error:
        parser.error(sentence(error))
    try:
        uvloop.run(serve_until_signalled(config))
    except (OSError, sqlite3.Error) as error:
        sys.exit(f"The simulated providers cannot start: {error}")


if __name__ == "__main__":
    main()
