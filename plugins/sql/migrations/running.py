"""Alembic, run in this process on the connection that writes; loaded only where there is something to do."""

from pathlib import Path
from typing import Any

from alembic.config import Config
from alembic.runtime.environment import EnvironmentContext
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import Connection

from bot import ConfigError
from plugins.sql.schema import VERSION_TABLE, metadata

HERE = Path(__file__).parent


def migrate(connection: Connection, wanted: str, *, scripts: Path = HERE) -> None:
    """Bring the schema to a version, in one transaction: a failure at any statement changes nothing.

    Tables are copied where SQLite cannot alter them, so foreign keys are off meanwhile and looked over
    before the commit.
    """
    config = Config()
    config.set_main_option("script_location", str(scripts).replace("%", "%%"))
    config.set_main_option("path_separator", "os")
    script = ScriptDirectory.from_config(config)
    connection.exec_driver_sql("PRAGMA foreign_keys = OFF")
    connection.rollback()
    try:
        connection.exec_driver_sql("BEGIN IMMEDIATE")
        _run(connection, config, script, wanted)
        broken = connection.exec_driver_sql("PRAGMA foreign_key_check").fetchall()
        if broken:
            raise ConfigError(f"schema {wanted} would leave {len(broken)} rows without what they belong to")
        connection.commit()
    except BaseException:
        connection.rollback()
        raise
    finally:
        connection.exec_driver_sql("PRAGMA foreign_keys = ON")
        connection.rollback()


def _run(connection: Connection, config: Config, script: ScriptDirectory, wanted: str) -> None:
    def steps(revision: Any, context: MigrationContext) -> Any:
        return script._upgrade_revs(wanted, revision)

    with EnvironmentContext(config, script, fn=steps, destination_rev=wanted) as environment:
        environment.configure(
            connection=connection,
            target_metadata=metadata,
            version_table=VERSION_TABLE,
            render_as_batch=True,
            transactional_ddl=True,
        )
        environment.run_migrations()
