"""Messages that contradict our books can be listed."""

import sqlalchemy as sa
from alembic import op

revision = "0006"
down_revision = "0005"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """An index of the few messages that operators look for among the many that are kept."""
    op.create_index(
        "inbox_contradicts_idx",
        "inbox",
        ["id"],
        postgresql_where=sa.text("reading IN ('differs', 'too_late')"),
    )


def downgrade() -> None:
    """The list is found by looking at every message."""
    op.drop_index("inbox_contradicts_idx", table_name="inbox")
