"""All the books of one agent, in a database."""

from bot import Clock, system_clock
from bot.store import Sharing
from plugins.sql.core.base import Access, Owner
from plugins.sql.core.plugin_tables import SqlTables
from plugins.sql.stores.cache_logs_costs import SqlCache, SqlLogs, SqlSpending
from plugins.sql.stores.edits import SqlChanges
from plugins.sql.stores.entities import SqlEntities
from plugins.sql.stores.ledger import SqlLedger
from plugins.sql.stores.memories import SqlMemories
from plugins.sql.stores.tasks import SqlTasks
from plugins.sql.stores.worlds import SqlWorlds


class SqlStore:
    """Keeps everything in an open database; see `Store`."""

    def __init__(
        self, database: Access, owner: Owner, tables: SqlTables, clock: Clock = system_clock
    ) -> None:
        self.worlds = SqlWorlds(database, owner)
        self.entities = SqlEntities(database, owner)
        self.memories = SqlMemories(database, owner)
        self.tasks = SqlTasks(database, owner)
        self.cache = SqlCache(database, owner, clock)
        self.logs = SqlLogs(database, owner, clock)
        self.ledger = SqlLedger(database, owner)
        self.spending = SqlSpending(database, owner)
        self.changes = SqlChanges(database, owner)
        self.tables = tables
        self.sharing: Sharing | None = None
