"""What the source must not do: build SQL from values, compare secrets early, show settings."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from pydantic import SecretStr, ValidationError

from runtime.settings import Settings

SOURCE = Path(__file__).parents[2] / "src"
EXECUTES = {"execute", "executemany", "fetch", "fetchrow", "fetchval", "cursor", "prepare"}
CONSTANT = re.compile(r"_?[A-Z][A-Z0-9_]*")
GUARDED = ("ledger/access.py", "api/authentication.py", "providers/webhook_signatures.py")
SECRET_NAMES = re.compile(r"secret|token|signature|digest|hash|expected|given")
MARKER = "m4rk3r"
SECRETS = {
    "database_url": f"postgresql://u:{MARKER}@127.0.0.1/x",
    "temporal_api_key": MARKER,
    "stripe_api_key": MARKER,
    "smtp_password": MARKER,
    "webhook_secrets": {"stripe": MARKER},
}


def _trees(*folders: str) -> Iterator[tuple[Path, ast.Module]]:
    for folder in folders:
        for path in sorted((SOURCE / folder).rglob("*.py")):
            yield path, ast.parse(path.read_text())


def _is_fixed(node: ast.expr, built: frozenset[str]) -> bool:
    """Whether this is text of ours: a literal, a constant, or a call of a compiled statement."""
    match node:
        case ast.Constant(value=str()):
            return True
        case ast.Name(id=name):
            return name not in built
        case ast.Attribute(attr=name):
            return CONSTANT.fullmatch(name) is not None or name == "sql"
        case ast.Starred(value=value):
            return isinstance(value, ast.Call | ast.Name)
        case ast.Call(func=ast.Name(id="text"), args=[argument, *_]):
            return _is_fixed(argument, built)
        case _:
            return False


def _is_formatted(node: ast.expr) -> bool:
    """Whether the text is put together from parts that are not constants of the module."""
    match node:
        case ast.JoinedStr(values=values):
            parts = [part.value for part in values if isinstance(part, ast.FormattedValue)]
            return not all(isinstance(p, ast.Name) and CONSTANT.fullmatch(p.id) for p in parts)
        case ast.BinOp(op=ast.Mod()):
            return True
        case ast.BinOp(left=left, right=right):
            return _is_formatted(left) or _is_formatted(right)
        case ast.Call(func=ast.Attribute(attr="format" | "format_map")):
            return True
        case _:
            return False


def test_sql_is_fixed_text_and_values_are_parameters() -> None:
    wrong: list[str] = []
    for path, tree in _trees("ledger", "activities", "api"):
        assigned = [node for node in ast.walk(tree) if isinstance(node, ast.Assign)]
        built = frozenset(
            target.id
            for node in assigned
            for target in node.targets
            if isinstance(target, ast.Name) and _is_formatted(node.value)
        )
        wrong += [
            f"{path.relative_to(SOURCE)}:{node.lineno}"
            for node in ast.walk(tree)
            if isinstance(node, ast.Call)
            and isinstance(node.func, ast.Attribute)
            and node.func.attr in EXECUTES
            and node.args
            and not _is_fixed(node.args[0], built)
        ]
    assert wrong == []


@pytest.mark.parametrize(
    "source",
    [
        'connection.execute(f"SELECT {x}")',
        'connection.fetch("SELECT %s" % x)',
        'connection.fetchrow("SELECT " + x)',
        'sql = f"SELECT {x}"\nconnection.fetchval(sql)',
    ],
)
def test_what_is_looked_for_would_be_found(source: str) -> None:
    tree = ast.parse(source)
    built = frozenset(
        {"sql"}
        if any(isinstance(n, ast.Assign) and _is_formatted(n.value) for n in tree.body)
        else ()
    )
    call = next(node for node in ast.walk(tree) if isinstance(node, ast.Call))
    assert not _is_fixed(call.args[0], built)


def test_secrets_are_compared_in_constant_time() -> None:
    early: list[str] = []
    for name in GUARDED:
        for node in ast.walk(ast.parse((SOURCE / name).read_text())):
            if isinstance(node, ast.Compare) and isinstance(node.ops[0], ast.Eq | ast.NotEq):
                sides = [node.left, *node.comparators]
                names = [ast.unparse(side) for side in sides if not isinstance(side, ast.Constant)]
                if len(names) == 2 and any(SECRET_NAMES.search(found) for found in names):
                    early.append(f"{name}:{node.lineno}")
    assert early == []


def test_settings_show_no_secret() -> None:
    settings = Settings.model_validate(SECRETS)
    shown = f"{settings!r} {settings} {settings.model_dump()} {settings.model_dump_json()}"
    assert MARKER not in shown


def test_settings_that_are_wrong_show_no_secret() -> None:
    with pytest.raises(ValidationError) as caught:
        Settings.model_validate({**SECRETS, "database_url": f"mysql://u:{MARKER}@h/x"})
    assert MARKER not in str(caught.value)


def test_every_setting_whose_name_says_so_is_a_secret() -> None:
    named = re.compile(r"key$|keys$|password|secret|token")
    plain = {"stripe_idempotency_keys"}
    for name, field in Settings.model_fields.items():
        if named.search(name) and name not in plain:
            assert SecretStr.__name__ in str(field.annotation), name
