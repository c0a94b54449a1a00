"""How a command answers: a table for people, JSON for programs."""

from enum import StrEnum
from typing import Annotated

import typer


class Output(StrEnum):
    """What standard output is for."""

    TABLE = "table"
    JSON = "json"


OutputOption = Annotated[Output, typer.Option(help="table for people, json for programs.")]
