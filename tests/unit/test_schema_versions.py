"""The newest version is what Alembic would migrate to, read without it."""

import subprocess
import sys

from alembic.config import Config
from alembic.script import ScriptDirectory

from ledger.versions import MIGRATIONS, newest


def test_the_newest_version_is_the_head_of_the_migrations() -> None:
    config = Config()
    config.set_main_option("script_location", str(MIGRATIONS))
    config.set_main_option("path_separator", "os")
    assert newest() == ScriptDirectory.from_config(config).get_current_head()


def test_the_api_and_the_worker_run_without_alembic() -> None:
    asked = "import sys, runtime.api_process, runtime.worker; print('alembic' in sys.modules)"
    answer = subprocess.run(
        [sys.executable, "-c", asked], capture_output=True, text=True, check=True, timeout=60
    )
    assert answer.stdout.strip() == "False"
