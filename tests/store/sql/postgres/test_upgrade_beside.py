"""Real processes of two versions answer side by side while they are upgraded in sequence."""

import asyncio
import shutil
from pathlib import Path

import asyncpg  # type: ignore[import-untyped]  # it brings no types
import pytest

from bot.store.sql.core.schema import COMPATIBLE_FROM, VERSION
from tests.cluster.members import ROOT, Cluster, Platform

pytestmark = pytest.mark.long

NEXT = f"{int(VERSION) + 1:04}"
MIGRATION = f'''"""A column that the version before does not know."""

import sqlalchemy as sa
from alembic import op

revision = "{NEXT}"
down_revision = "{VERSION}"


def upgrade() -> None:
    op.add_column("receipts", sa.Column("importance", sa.Integer))
    op.create_index("ix_receipts_importance", "receipts", ["agent_id", "importance"])
'''


@pytest.fixture
def next_version(tmp_path: Path) -> Path:
    """Return a folder with this code, one additive migration later."""
    for package in ("bot", "plugins", "adapters"):
        shutil.copytree(ROOT / package, tmp_path / package, ignore=shutil.ignore_patterns("__pycache__", "*.map"))
    folder = tmp_path / "bot" / "store" / "sql"
    schema = folder / "core" / "schema.py"
    text = schema.read_text().replace(f'\nVERSION = "{VERSION}"', f'\nVERSION = "{NEXT}"')
    schema.write_text(text.replace(f'COMPATIBLE_FROM = "{COMPATIBLE_FROM}"', f'COMPATIBLE_FROM = "{VERSION}"'))
    (folder / "migrations" / "versions" / f"v{NEXT}_next.py").write_text(MIGRATION)
    return tmp_path


async def find_version(url: str) -> str:
    connection = await asyncpg.connect(url)
    try:
        return str(await connection.fetchval("SELECT version_num FROM alembic_version_sql"))
    finally:
        await connection.close()


async def test_processes_of_this_version_and_of_the_next_answer_side_by_side_while_they_are_replaced(
    postgres_url: str, next_version: Path
) -> None:
    async with asyncio.timeout(90.0), Platform().running() as platform:
        cluster = Cluster(postgres_url, platform)
        async with cluster.running(1):
            assert await find_version(postgres_url) == VERSION
            writing = asyncio.create_task(cluster.write(8))
            await cluster.start_worker(next_version)
            assert await find_version(postgres_url) == NEXT
            await cluster.start_worker()  # the version before starts again, for instance after a crash
            for worker in (cluster.workers[0], cluster.workers[2]):
                await platform.wait_posts("room0", len(platform.posts["room0"]) + 5)
                await worker.stop()
            await platform.wait_posts("room0", len(platform.posts["room0"]) + 5)
            cluster.is_over = True
            await writing
            assert await cluster.wait_answered() == []
    assert (platform.doubles, platform.inversions) == ([], 0)
    assert len(platform.arrived_at) > 8 * 5
