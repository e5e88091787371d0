"""The table of the API: every address, what it takes and what it gives."""

from dataclasses import dataclass

from pydantic import BaseModel

from adapters.web.bodies import (
    AgentsAnswer,
    CostsAnswer,
    CostsQuery,
    DecisionAnswer,
    Health,
    MessageAnswer,
    MessageRequest,
    MessagesAnswer,
    MessagesQuery,
    OutboxAnswer,
    OutboxQuery,
    Query,
    ReceiptAnswer,
    ReceiptsAnswer,
    ReceiptsQuery,
    RoomsAnswer,
    RoomsQuery,
)

HEALTH = "/healthz"
SOCKET = "/api/ws"


@dataclass(frozen=True, slots=True)
class Operation:
    """One method of one address; `refusals` are the statuses beside those that any address has."""

    name: str
    method: str
    path: str
    summary: str
    answer: type[BaseModel] | None = None
    query: type[Query] | None = None
    body: type[BaseModel] | None = None
    refusals: tuple[int, ...] = ()


OPERATIONS = (
    Operation(
        "health",
        "GET",
        HEALTH,
        "Tell whether messages are taken in, and how each platform is connected; needs no token",
        Health,
        refusals=(503,),
    ),
    Operation("agents", "GET", "/api/agents", "List the agents", AgentsAnswer),
    Operation(
        "say",
        "POST",
        "/api/agents/{agent}/messages",
        "Send an agent, by id or name, a message and wait for its outcome",
        MessageAnswer,
        body=MessageRequest,
        refusals=(400, 404, 408, 413, 415, 422, 503),
    ),
    Operation("rooms", "GET", "/api/rooms", "List rooms", RoomsAnswer, RoomsQuery, refusals=(404, 422)),
    Operation(
        "messages",
        "GET",
        "/api/rooms/{id}/messages",
        "List the last messages of a room",
        MessagesAnswer,
        MessagesQuery,
        refusals=(404, 422),
    ),
    Operation(
        "receipts",
        "GET",
        "/api/receipts",
        "List what became of the latest messages",
        ReceiptsAnswer,
        ReceiptsQuery,
        refusals=(404, 422),
    ),
    Operation(
        "receipt",
        "GET",
        "/api/receipts/{id}",
        "Tell what became of a message, by its id or its receipt's, and why",
        ReceiptAnswer,
        refusals=(404,),
    ),
    Operation(
        "costs",
        "GET",
        "/api/costs",
        "Tell what models have cost, by day, room, person or model",
        CostsAnswer,
        CostsQuery,
        refusals=(404, 422),
    ),
    Operation(
        "outbox",
        "GET",
        "/api/outbox",
        "List the parts that wait, are held or have failed",
        OutboxAnswer,
        OutboxQuery,
        refusals=(404, 422),
    ),
    Operation(
        "send",
        "POST",
        "/api/outbox/{id}/send",
        "Put a held or failed part back, so that it leaves",
        DecisionAnswer,
        refusals=(404, 409),
    ),
    Operation(
        "drop",
        "POST",
        "/api/outbox/{id}/drop",
        "Give a part up for good",
        DecisionAnswer,
        refusals=(404, 409),
    ),
    Operation("openapi", "GET", "/api/openapi.json", "This description"),
    Operation("socket", "GET", SOCKET, "Talk over a WebSocket; its frames are ClientFrame and ServerFrame"),
)
