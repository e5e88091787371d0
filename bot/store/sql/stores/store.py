"""The store of one agent."""

from bot.concurrency.clock import Clock, system_clock
from bot.store.ledger import WorkSharing
from bot.store.sql.core.base import Access, AgentRow
from bot.store.sql.core.upgrade import SqlPluginTables
from bot.store.sql.stores.cache_logs_costs import SqlActivity, SqlCache, SqlCosts, SqlLogs
from bot.store.sql.stores.edits import SqlEdits
from bot.store.sql.stores.ledger import SqlLedger
from bot.store.sql.stores.lists import SqlLists
from bot.store.sql.stores.marks import SqlMarks, SqlTakeOvers
from bot.store.sql.stores.memories import SqlMemories
from bot.store.sql.stores.summaries import SqlSummaries
from bot.store.sql.stores.tasks import SqlTasks
from bot.store.sql.stores.worlds import SqlEntities, SqlWorlds


class SqlStore:
    """Stores everything in an open database; see `Store`."""

    def __init__(
        self, database: Access, agent_row: AgentRow, tables: SqlPluginTables, clock: Clock = system_clock
    ) -> None:
        self.worlds = SqlWorlds(database, agent_row)
        self.entities = SqlEntities(database, agent_row)
        self.marks = SqlMarks(database, agent_row)
        self.take_overs = SqlTakeOvers(database, agent_row)
        self.memories = SqlMemories(database, agent_row)
        self.summaries = SqlSummaries(database, agent_row)
        self.tasks = SqlTasks(database, agent_row)
        self.cache = SqlCache(database, agent_row, clock)
        self.logs = SqlLogs(database, agent_row, clock)
        self.ledger = SqlLedger(database, agent_row)
        self.costs = SqlCosts(database, agent_row)
        self.lists = SqlLists(database, agent_row)
        self.activity = SqlActivity(database, agent_row)
        self.edits = SqlEdits(database, agent_row)
        self.tables = tables
        self.sharing: WorkSharing | None = None
