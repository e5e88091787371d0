"""Run Alembic migrations inside an open transaction; imported only if there is something to do."""

from typing import Any

from alembic.config import Config
from alembic.runtime.environment import EnvironmentContext
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import Connection, inspect, text

from bot.errors import ConfigError, PluginError
from bot.store.protocols import Schema
from bot.store.sql.core.upgrade import COMPATIBLE_COLUMN


def check_history(schema: Schema, version: str | None, label: str) -> None:
    """Raise ConfigError for a version that the migrations do not contain: newer code has written it.

    Raise PluginError if the migrations do not end at the schema's version.
    """
    script = _scripts(schema)
    if version and version not in {revision.revision for revision in script.walk_revisions()}:
        raise ConfigError(
            f"{label} has version {version}, this program knows {schema.version}: update it, or restore the "
            "backup that was made before the update"
        )
    if script.get_heads() != [schema.version]:
        raise PluginError(
            f"{schema.migrations} ends at {', '.join(script.get_heads())}, but the schema's version is "
            f"{schema.version}: they must be the same"
        )


def is_newer(schema: Schema, version: str, compatible_from: str) -> bool:
    """Return whether a version is newer than these migrations, and works with code from one of them on."""
    known = {revision.revision for revision in _scripts(schema).walk_revisions()}
    return version not in known and compatible_from in known


def migrate(connection: Connection, schema: Schema, version_table: str) -> None:
    """Upgrade tables from the stored version to that of their schema, and store what it is compatible with.

    Run all migrations if no version is stored.
    """
    script = _scripts(schema)

    def steps(revision: Any, context: MigrationContext) -> Any:
        return script._upgrade_revs(schema.version, revision)

    with EnvironmentContext(Config(), script, fn=steps, destination_rev=schema.version) as environment:
        environment.configure(
            connection=connection,
            target_metadata=schema.metadata,
            version_table=version_table,
            render_as_batch=True,
            transactional_ddl=True,
        )
        environment.run_migrations()
    if COMPATIBLE_COLUMN not in {column["name"] for column in inspect(connection).get_columns(version_table)}:
        connection.exec_driver_sql(f"ALTER TABLE {version_table} ADD COLUMN {COMPATIBLE_COLUMN} VARCHAR(32)")
    statement = text(f"UPDATE {version_table} SET {COMPATIBLE_COLUMN} = :compatible_from")
    connection.execute(statement, {"compatible_from": schema.compatible_from or None})


def _scripts(schema: Schema) -> ScriptDirectory:
    config = Config()
    config.set_main_option("script_location", str(schema.migrations).replace("%", "%%"))
    config.set_main_option("path_separator", "os")
    return ScriptDirectory.from_config(config)
