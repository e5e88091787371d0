"""All the books of one agent, in a database."""

from bot import Clock, Sharing, system_clock
from plugins.sql.book import Access
from plugins.sql.changes import SqlChanges
from plugins.sql.ledger import SqlLedger
from plugins.sql.memories import SqlMemories
from plugins.sql.owner import Owner
from plugins.sql.people import SqlEntities
from plugins.sql.small import SqlCache, SqlLogs
from plugins.sql.spending import SqlSpending
from plugins.sql.tables import SqlTables
from plugins.sql.tasks import SqlTasks
from plugins.sql.worlds import SqlWorlds


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
