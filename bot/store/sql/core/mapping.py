"""The mapping between tables and dataclasses: types of columns, columns by name, and parts of statements.

Numbers, bytes and text mean the same to every driver. Times are integers because reading one costs a sixth of parsing
ISO text, and because they compare and index correctly.

The stored form of texts, JSON and the content of messages.
"""

import base64
import json
import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import fields, is_dataclass
from datetime import UTC, date, datetime, timedelta
from enum import StrEnum
from functools import cached_property, lru_cache
from importlib import import_module
from itertools import islice
from operator import attrgetter, itemgetter
from types import MappingProxyType
from typing import Any, ClassVar, Generic, TypeVar
from uuid import UUID

from pydantic_core import to_json
from sqlalchemy import (
    BigInteger,
    BindParameter,
    Connection,
    CursorResult,
    Integer,
    LargeBinary,
    Select,
    Table,
    Text,
    and_,
    bindparam,
    literal_column,
    select,
)
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.sql.elements import ColumnElement
from sqlalchemy.sql.expression import Executable, FromClause
from sqlalchemy.sql.functions import FunctionElement
from sqlalchemy.types import NullType, TypeDecorator, UserDefinedType

from bot.domain.content import (
    FORWARDED_AUTHOR,
    Attachment,
    Choice,
    Content,
    MediaKind,
    MentionContext,
    PostOperation,
    PostOperationKind,
    Quotation,
)
from bot.domain.environment import Role
from bot.domain.ledger import ModelCall
from bot.errors import UnreadableRow
from bot.store.lists import MAX_EXAMINED_ROWS, PageKey
from bot.text import shorten

NOT_MENTIONED = MentionContext()
PLAIN_FIELDS = ("thought", "actions", "providers", "url", "metadata")
QUOTATION_KEY = "quotation"
TEXT_FIELDS = ("url", "content_type", "name", "title", "description", "text", "problem")


def storable_text(text: str) -> str:
    """Return text without NULs and lone surrogates, which no database accepts."""
    if text.isascii() and "\0" not in text:
        return text
    return text.replace("\0", "").encode("utf-8", "replace").decode("utf-8")


def _to_plain(value: object) -> Any:
    if isinstance(value, Mapping):
        return dict(value)
    if isinstance(value, Set):
        return list(value)
    return str(value)  # a plugin's unusual value must not fail the commit


_encode_escaped = json.JSONEncoder(ensure_ascii=True, separators=(",", ":"), default=_to_plain).encode
_decode = json.JSONDecoder().raw_decode  # stored JSON has nothing before or after it


def loads(text: str) -> Any:
    """Return the data of stored JSON."""
    return {} if text == "{}" else _decode(text)[0]


def dumps(value: Any) -> str:
    """Return data as JSON for a text column.

    Other types are serialized as pydantic does (a dataclass with every field), or as a string if pydantic
    does not know them.
    """
    try:
        return to_json(value, fallback=_to_plain).decode()
    except ValueError:  # a lone surrogate, from a model: escaping preserves it
        return _encode_escaped(value)


def content_text(content: Content) -> str:
    """Return a content as JSON."""
    data: dict[str, Any] = {"text": content.text, "source": content.source}
    data |= {name: value for name in PLAIN_FIELDS if (value := getattr(content, name))}
    if content.attachments:
        data["attachments"] = [_attachment_data(attachment) for attachment in content.attachments]
    if content.in_reply_to is not None:
        data["in_reply_to"] = str(content.in_reply_to)
    if content.mention != NOT_MENTIONED:
        mention = content.mention
        data["mention"] = [mention.is_mention, mention.is_reply, mention.is_thread, mention.denied_by]
        if mention.replies_to is not None:
            data["replies_to"] = str(mention.replies_to)
        if mention.mentions_others:
            data["mentions_others"] = True
    if content.choices:
        data["choices"] = [(attachment.label, attachment.value) for attachment in content.choices]
    if content.operation is not None:
        data["operation"] = [content.operation.kind.value, content.operation.post_id]
    if content.quotation is not None:
        data[QUOTATION_KEY] = _quotation_data(content.quotation)
    return dumps(data)


def content_of(text: str) -> Content:
    """Return the content of its JSON."""
    data = loads(text)
    if len(data) == 2:  # nearly every message: only a text and its source
        return Content(text=data["text"], source=data["source"])
    reply_to = data.get("in_reply_to")
    operation, metadata = _operation_of(data)
    return Content(
        text=data["text"],
        thought=data.get("thought", ""),
        actions=tuple(data.get("actions", ())),
        providers=tuple(data.get("providers", ())),
        attachments=tuple(_attachment_of(item) for item in data.get("attachments", ())),
        source=data["source"],
        url=data.get("url", ""),
        in_reply_to=UUID(reply_to) if reply_to else None,
        mention=_mention_of(data) if "mention" in data else NOT_MENTIONED,
        metadata=metadata,
        choices=tuple(Choice(*item) for item in data.get("choices", ())),
        operation=operation,
        quotation=_quotation_of(data[QUOTATION_KEY]) if QUOTATION_KEY in data else None,
    )


def quotation_mark(*, author_id: UUID | None = None, message_id: str = "") -> str:
    """Return what stands in the JSON of a content that quotes this author, or this message; else of any that quotes."""
    if author_id is not None:
        return f'"author_id":{dumps(str(author_id))}'
    return f'"message_id":{dumps(message_id)}' if message_id else f'"{QUOTATION_KEY}":'


def forward_mark(author_id: UUID) -> str:
    """Return what stands in the JSON of a content that this author's words were forwarded in."""
    return f'"{FORWARDED_AUTHOR}":{dumps(str(author_id))}'


def _quotation_data(quotation: Quotation) -> dict[str, Any]:
    author_id = str(quotation.author_id) if quotation.author_id is not None else ""
    data = {"author_id": author_id, "author_name": quotation.author_name, "message_id": quotation.message_id}
    stored: dict[str, Any] = {"text": quotation.text} | {name: value for name, value in data.items() if value}
    if quotation.attachments:
        stored["attachments"] = [_attachment_data(attachment) for attachment in quotation.attachments]
    return stored


def _quotation_of(data: Mapping[str, Any]) -> Quotation:
    author_id = data.get("author_id")
    return Quotation(
        text=data["text"],
        author_name=data.get("author_name", ""),
        author_id=UUID(author_id) if author_id else None,
        message_id=data.get("message_id", ""),
        attachments=tuple(_attachment_of(item) for item in data.get("attachments", ())),
    )


def _mention_of(data: dict[str, Any]) -> MentionContext:
    """Return how a message addresses; what earlier versions do not read stands beside their list."""
    is_mention, is_reply, is_thread, denied_by = data["mention"]
    replies_to = data.get("replies_to")
    return MentionContext(
        is_mention=is_mention,
        is_reply=is_reply,
        is_thread=is_thread,
        denied_by=denied_by,
        replies_to=UUID(replies_to) if replies_to else None,
        mentions_others=data.get("mentions_others", False),
    )


def _operation_of(data: dict[str, Any]) -> tuple[PostOperation | None, Mapping[str, Any]]:
    """Return the operation and the metadata; earlier versions stored the operation in the metadata."""
    metadata = data.get("metadata", {})
    if "operation" in data:
        kind, post_id = data["operation"]
        return PostOperation(PostOperationKind(kind), post_id), metadata
    if "x_act" not in metadata:
        return None, metadata
    metadata = dict(metadata)
    kind, post_id = metadata.pop("x_act"), str(metadata.pop("x_subject", ""))
    return (PostOperation(PostOperationKind(kind), post_id) if kind else None), metadata


def _attachment_data(attachment: Attachment) -> dict[str, Any]:
    data: dict[str, Any] = {"id": attachment.id, "kind": attachment.kind.value}
    data |= {name: value for name in TEXT_FIELDS if (value := getattr(attachment, name))}
    if attachment.data is not None:
        data["data"] = base64.b64encode(attachment.data).decode("ascii")
    if attachment.size is not None:
        data["size"] = attachment.size
    return data


def _attachment_of(data: dict[str, Any]) -> Attachment:
    fields = dict(data)
    encoded = fields.pop("data", None)
    kind = MediaKind(fields.pop("kind"))
    return Attachment(kind=kind, data=None if encoded is None else base64.b64decode(encoded), **fields)


logger = logging.getLogger(__name__)

T = TypeVar("T")
Row = Sequence[Any]
Values = Mapping[str, Any]
NIL = UUID(int=0)
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
MICROSECOND = timedelta(microseconds=1)
NANO = 1_000_000_000
TIME_BITS = 48  # of milliseconds at the beginning of a time-ordered id
_id_of = attrgetter("id")
CALL_FIELDS = tuple(field.name for field in fields(ModelCall))
INVALID_JSON = "a row in the database holds invalid JSON: correct or delete it; `bot db check` names it"
READING_ERRORS = (ValueError, TypeError, KeyError, IndexError, AttributeError, OverflowError)


def microseconds_of(value: datetime) -> int:
    """Return microseconds since 1970 in UTC; raise TypeError for a time without a time zone."""
    return (value - EPOCH) // MICROSECOND


def datetime_of(value: int) -> datetime:
    """Return the time of its microseconds."""
    return EPOCH + timedelta(microseconds=value)


def first_id(time: datetime) -> UUID:
    """Return the lowest of the time-ordered ids that are made at a time or later."""
    return UUID(int=microseconds_of(time) // 1000 << (128 - TIME_BITS))


@lru_cache(maxsize=4096)  # the ids of rooms, worlds and entities repeat with every message
def id_of(value: bytes) -> UUID:
    """Return the id of its bytes."""
    return UUID(bytes=value)


class Unreadable:
    """Stands for a stored value that this code never wrote; `error` names what happened when it was read."""

    def __init__(self, error: Exception) -> None:
        self.error = error


class StoredType(TypeDecorator[T], Generic[T]):
    """A type with `encode` for values that are stored and `decode` for those that are read; NULL is None."""

    cache_ok = True

    def encode(self, value: Any) -> Any:
        """Return the value for the driver."""
        return value

    def decode(self, value: Any) -> Any:
        """Return the value of what the driver returns; raise one of READING_ERRORS for what was never written."""
        return value

    def to_driver(self, value: Any) -> Any:
        """Return the value for the driver, None for None."""
        return None if value is None else self.encode(value)

    def from_driver(self, value: Any) -> Any:
        """Return the value of what the driver returns; an `Unreadable` if that is impossible."""
        if value is None:
            return None
        try:
            return self.decode(value)
        except READING_ERRORS as error:
            return Unreadable(error)

    # Not `process_bind_param` and `process_result_value`: SQLAlchemy's own types for bytes would convert before them,
    # and fail for a whole result where a program has stored a text.
    def bind_processor(self, dialect: Any) -> Callable[[Any], Any]:
        """Return the function for values that are stored."""
        return self.to_driver

    def result_processor(self, dialect: Any, coltype: object) -> Callable[[Any], Any] | None:
        """Return the function for values that are read."""
        return self.from_driver

    def process_literal_param(self, value: Any, dialect: Any) -> Any:
        """Return a value that becomes a part of a statement's text."""
        return self.to_driver(value)


class Id(StoredType[UUID]):
    """A UUID of 16 bytes."""

    impl = LargeBinary(16)
    cache_ok = True

    def encode(self, value: UUID) -> bytes:
        return value.bytes

    def decode(self, value: bytes) -> UUID:
        return id_of(value)


class OptionalId(Id):
    """A UUID of which None is stored as zeroes: in a unique key NULL would equal no other NULL."""

    cache_ok = True

    def to_driver(self, value: UUID | None) -> bytes:
        return (value or NIL).bytes

    def decode(self, value: bytes) -> Any:
        return id_of(value) if value != NIL.bytes else None


class IdList(StoredType[frozenset[UUID]]):
    """Ids in hexadecimal digits, separated by spaces."""

    impl = Text
    cache_ok = True

    def encode(self, value: Iterable[UUID]) -> str:
        return " ".join([item.hex for item in value])

    def decode(self, value: str) -> frozenset[UUID]:
        return frozenset(map(UUID, value.split()))


class Time(StoredType[datetime]):
    """A time in microseconds since 1970."""

    impl = BigInteger
    cache_ok = True

    def encode(self, value: datetime) -> int:
        return microseconds_of(value)

    def decode(self, value: int) -> datetime:
        return datetime_of(value)


class Flag(StoredType[bool]):
    """A flag as 1 or 0."""

    impl = BigInteger
    cache_ok = True

    def encode(self, value: bool) -> int:
        return int(value)

    def decode(self, value: int) -> bool:
        return bool(value)


class PlainText(StoredType[str]):
    """A text, without the characters that no database accepts."""

    impl = Text
    cache_ok = True

    def encode(self, value: str) -> str:
        return storable_text(value)

    def result_processor(self, dialect: Any, coltype: object) -> None:
        """Return None: a text is read as it is."""


class EnumText(StoredType[StrEnum]):
    """A member of an enumeration, by its value."""

    impl = Text
    cache_ok = True

    def __init__(self, enum: type[StrEnum]) -> None:
        super().__init__()
        self.enum = enum

    def encode(self, value: str) -> str:
        return str(value)

    def decode(self, value: str) -> StrEnum:
        return self.enum(value)


class Json(StoredType[Any]):
    """Data as JSON; a `collection` is made of a list that is read, such as a tuple."""

    impl = Text
    cache_ok = True

    def __init__(self, collection: type | None = None) -> None:
        super().__init__()
        self.collection = collection

    def to_driver(self, value: Any) -> str:
        return self.encode(value)

    def encode(self, value: Any) -> str:
        if not value and self.collection is not None:
            return "[]"
        return dumps(sorted(value) if self.collection is frozenset else value)

    def decode(self, value: str) -> Any:
        data = loads(value)
        return data if self.collection is None else self.collection(data)


class RolesJson(Json):
    """Roles by person. The role `unset` is stored as null, which removes a person where it is merged."""

    cache_ok = True

    def __init__(self, unset: Role | None = None) -> None:
        super().__init__()
        self.unset = unset

    def encode(self, value: Mapping[UUID, Role]) -> str:
        return dumps({str(person): None if role is self.unset else role for person, role in value.items()})

    def decode(self, value: str) -> dict[UUID, Role]:
        return {UUID(person): Role(role) for person, role in loads(value).items()}


class SettingsJson(Json):
    """Texts by name. A blank one is stored as null, which removes it where it is merged."""

    cache_ok = True

    def encode(self, value: Mapping[str, str]) -> str:
        return dumps({storable_text(name): storable_text(text) or None for name, text in value.items()})


class StrictJson(Json):
    """Data as JSON; TypeError for what is none."""

    cache_ok = True

    def encode(self, value: Any) -> str:
        return json.dumps(value)


class Day(StoredType[date]):
    """A date as ISO text."""

    impl = Text
    cache_ok = True

    def encode(self, value: date) -> str:
        return value.isoformat()

    def decode(self, value: str) -> date:
        return date.fromisoformat(value)


class Dollars(StoredType[float]):
    """An amount of dollars in billionths."""

    impl = BigInteger
    cache_ok = True

    def encode(self, value: float) -> int:
        return round(value * NANO)

    def decode(self, value: int) -> float:
        return int(value) / NANO


class ContentJson(StoredType[Content]):
    """The content of a message as JSON."""

    impl = Text
    cache_ok = True

    def encode(self, value: Content) -> str:
        return content_text(value)

    def decode(self, value: str) -> Content:
        return content_of(value)


class ModelCallsJson(StoredType[tuple[ModelCall, ...]]):
    """Model calls as JSON."""

    impl = Text
    cache_ok = True

    def encode(self, value: tuple[ModelCall, ...]) -> str:
        return dumps([{name: getattr(call, name) for name in CALL_FIELDS} for call in value])

    def decode(self, value: str) -> tuple[ModelCall, ...]:
        return tuple(ModelCall(**call) for call in loads(value))


class HalfVector(UserDefinedType[bytes]):
    """A float16 vector of pgvector: half the size of float32, with equal search results."""

    cache_ok = True

    def get_col_spec(self, **options: Any) -> str:
        """Return the name of the type."""
        return "HALFVEC"


def column_names(table: Table) -> tuple[str, ...]:
    """Return the names of a table's columns but `position`, which the database fills in."""
    return tuple(column.name for column in table.columns if column.name != "position")


class RowMapping(Generic[T]):
    """The columns of a table and the dataclass of its rows, whose fields have the names of the columns.

    `build` makes a value of its fields and of the columns that are none; it is the dataclass by default. Columns that
    are no fields get their values as `derived`; those in `unread` are never read. `computed` are columns of which the
    database makes the values. With `dict` as the class, rows are only read. It unpacks into the columns:
    `select(*RECEIPT)`.
    """

    def __init__(
        self,
        table: Table,
        cls: type[T],
        *,
        build: Callable[..., T] | None = None,
        unread: Sequence[str] = (),
        computed: Sequence[str] = (),
    ) -> None:
        self.table = table
        self.stored_names = tuple(name for name in column_names(table) if name not in computed)  # in the table's order
        self.names = tuple(name for name in self.stored_names if name != "agent_id" and name not in unread)
        self.width = len(self.names)
        self._columns = tuple(table.c[name] for name in self.names)
        self._build: Callable[..., T] = build or cls
        known = {field.name for field in fields(cls)} if is_dataclass(cls) else set()
        self._fields = tuple(name for name in self.stored_names if name in known)
        self._get = attrgetter(*self._fields) if known else None
        required = [
            index
            for index, column in enumerate(self._columns)
            if not column.nullable and not isinstance(column.type, OptionalId | Json)
        ]
        self._get_required = itemgetter(*required, required[0])  # a tuple, even of one
        self._decoders = tuple(_decoder_of(column) for column in self._columns)
        self._encoders = {name: _encoder_of(table.c[name]) for name in self.stored_names}

    def __iter__(self) -> Iterator[ColumnElement[Any]]:
        return iter(self._columns)

    def values(self, value: T, agent: int, derived: Values = MappingProxyType({})) -> dict[str, Any]:
        """Return the values of the columns by name; those of `derived` come first."""
        assert self._get is not None, "a dataclass"
        return {"agent_id": agent, **dict(zip(self._fields, self._get(value), strict=True)), **derived}

    def changes(
        self, value: T, agent: int, names: Iterable[str], derived: Values = MappingProxyType({})
    ) -> dict[str, Any]:
        """Return the parameters of an update that stores the columns of these names in the row of a value's id."""
        values = self.values(value, agent, derived)
        return {"agent": agent, "id_": values["id"], **{name: values[name] for name in names}}

    def encode(
        self, value: T, agent: int, derived: Values = MappingProxyType({}), *, names: Sequence[str] = ()
    ) -> tuple[Any, ...]:
        """Return the values of columns as the driver takes them, of all stored ones in the table's order by default."""
        values = self.values(value, agent, derived)
        return tuple([self._encoders[name](values[name]) for name in names or self.stored_names])

    def read(self, row: Row) -> T:
        """Return the value of a row, which may be followed by others; raise UnreadableRow otherwise."""
        error: Exception
        values = row[: self.width]
        try:
            for value in values:
                if type(value) is Unreadable:
                    raise value.error
            if None in self._get_required(values):
                raise TypeError("a value is missing")
            return self._build(**dict(zip(self.names, values, strict=True)))
        except READING_ERRORS as problem:
            error = problem
        raise UnreadableRow(
            f"row {self.label_of(values)} of {self.table.name} in the database cannot be read "
            f"({type(error).__name__}): correct or delete it"
        ) from error

    def decode(self, row: Iterable[Any]) -> T:
        """Return the value of a row, or of the next values of one, as the driver returns it; raises as `read` does."""
        return self.read([decode(value) for decode, value in zip(self._decoders, row, strict=False)])

    def read_all(self, rows: Iterable[Row]) -> Iterator[T]:
        """Yield the values of rows, without those that cannot be read; see `read_or_report`."""
        for row in rows:
            if (value := self.read_or_report(row)) is not None:
                yield value

    def find(self, connection: Connection, statement: Executable, items: Iterable[Any], **values: Any) -> list[T]:
        """Return the values of a statement's rows, as `read_all`; `items` is a list of any length, see `in_batches`."""
        return list(self.read_all(rows_of(connection, statement, items, **values)))

    @cached_property
    def by_ids(self) -> Select[Any]:
        """The statement for the rows of `agent` with the ids in `items`."""
        return select(*self).where(matches(self.table), self.table.c.id.in_(bindparam("items")))

    @cached_property
    def by_id(self) -> Select[Any]:
        """The statement for the row of `agent` with the id `id_`; it takes less time than `by_ids` for a single one."""
        return select(*self).where(matches(self.table, "id"))

    def find_by_id(self, connection: Connection, agent: int, ids: Iterable[Any]) -> dict[Any, T]:
        """Return the values of an agent's rows by their ids, without those that cannot be read."""
        ids = list(ids)
        if len(ids) == 1:
            found = self.read_all(connection.execute(self.by_id, {"agent": agent, "id_": ids[0]}))
        else:
            found = iter(self.find(connection, self.by_ids, ids, agent=agent))
        return {_id_of(value): value for value in found}

    def get(self, connection: Connection, agent: int, row_id: Any) -> T | None:
        """Return the value of an agent's row by its id; raises as `read` does."""
        row = connection.execute(self.by_id, {"agent": agent, "id_": row_id}).first()
        return self.read(row) if row else None

    def decode_all(self, rows: Iterable[Row]) -> Iterator[T]:
        """Yield the values of rows as the driver returns them, without those that cannot be read."""
        return self.read_all([decode(value) for decode, value in zip(self._decoders, row, strict=True)] for row in rows)

    def read_or_report(self, row: Row) -> T | None:
        """Return the value of a row, which may be followed by others; None, and log it, if it cannot be read."""
        try:
            return self.read(row)
        except UnreadableRow as error:
            _report(str(error))
            return None

    def take(self, values: Iterator[Any]) -> T:
        """Read a value from the next `width` values of a joined row."""
        return self.read(tuple(islice(values, self.width)))

    def label_of(self, row: Row) -> str:
        """Return what identifies a row to an operator: its id, else its first columns."""
        values = dict(zip(self.names, row, strict=False))
        key_names = [
            name for name in map(attrgetter("name"), self.table.primary_key.columns) if name in values
        ] or list(values)[:2]
        keys = [values[name] for name in (["id"] if "id" in values else key_names)]
        return " ".join(shorten(str(id_of(key) if isinstance(key, bytes) else key), 80) for key in keys)


def _decoder_of(column: ColumnElement[Any]) -> Callable[[Any], Any]:
    type_ = column.type
    return type_.from_driver if isinstance(type_, StoredType) else lambda value: value


def _encoder_of(column: ColumnElement[Any]) -> Callable[[Any], Any]:
    type_ = column.type
    return type_.to_driver if isinstance(type_, StoredType) else lambda value: value


@lru_cache(maxsize=1024)
def _report(problem: str) -> None:
    """Log a problem once: a row may be read for every message."""
    logger.error("%s; it is left out", problem)


LIMIT = bindparam("limit", type_=Integer())  # the maximum number of rows


def parameter(column: ColumnElement[Any], name: str) -> BindParameter[Any]:
    """Return a parameter of a column's type, where SQLAlchemy does not take it from the column: in a tuple, say."""
    return bindparam(name, type_=column.type)


def matches(table: FromClause, *columns: str) -> ColumnElement[bool]:
    """Return the condition that a row is of `agent` and these columns equal the parameters of their names with `_`.

    Without it the names of columns are taken by what an INSERT or UPDATE stores.
    """
    of_agent: ColumnElement[bool] = table.c.agent_id == bindparam("agent", type_=Integer())
    return and_(of_agent, *(table.c[name] == bindparam(f"{name}_") for name in columns))


def is_flag(column: ColumnElement[Any], *, is_set: bool = True) -> ColumnElement[bool]:
    """Return the condition on a flag as a literal: with a parameter a partial index would not be used."""
    return column == literal_column("1" if is_set else "0")


def text_literal(value: object) -> ColumnElement[Any]:
    """Return a text as a literal, likewise."""
    return literal_column(f"'{value}'")


MAX_ITEMS = 500  # in a list of a statement


def in_batches(
    connection: Connection, statement: Executable, items: Iterable[Any], **values: Any
) -> Iterator[CursorResult[Any]]:
    """Execute a statement with a parameter `items` or `is_item` for a list of any length; yield its results."""
    remaining = iter(items)
    while batch := list(islice(remaining, MAX_ITEMS)):
        yield connection.execute(statement, {**values, "items": batch})


def rows_of(connection: Connection, statement: Executable, items: Iterable[Any], **values: Any) -> list[Row]:
    """Return all rows of a statement for a list of any length."""
    return [row for result in in_batches(connection, statement, items, **values) for row in result.all()]


def count_changed(connection: Connection, statement: Executable, items: Iterable[Any], **values: Any) -> int:
    """Execute a statement that changes rows for a list of any length; return how many it changed."""
    return sum(result.rowcount for result in in_batches(connection, statement, items, **values))


class InsertStatement:
    """An insert; `extend` may add what is to be done ON CONFLICT, which only each database's own insert knows.

    `expressions` are computed by the database.
    """

    def __init__(
        self,
        table: Table,
        names: Sequence[str],
        extend: Callable[[Any], Executable] = lambda insert: insert,
        **expressions: ColumnElement[Any],
    ) -> None:
        self._table = table
        self._values: dict[str, Any] = {name: bindparam(name) for name in names} | expressions
        self._extend = extend
        self._statements: dict[str, Executable] = {}

    def execute(self, connection: Connection, rows: Values | Sequence[Values]) -> CursorResult[Any]:
        """Execute it for a row, or for at least one."""
        return connection.execute(self.statement(connection.dialect.name), rows)

    def execute_all(self, connection: Connection, rows: Sequence[Values]) -> None:
        """Execute it for any number of rows."""
        if rows:
            self.execute(connection, rows)

    def statement(self, dialect_name: str) -> Executable:
        """Return the statement for a database, whose module is imported when it is needed: PostgreSQL's takes 2 MB."""
        statement = self._statements.get(dialect_name)
        if statement is None:
            insert = import_module(f"sqlalchemy.dialects.{dialect_name}").insert(self._table).inline()
            insert = insert.values(self._values) if self._values else insert
            statement = self._statements[dialect_name] = self._extend(insert)
        return statement


def insert_if_new(table: Table, names: Sequence[str]) -> InsertStatement:
    """Return a statement that inserts a row unless there is one with a key of it."""
    return InsertStatement(table, names, lambda insert: insert.on_conflict_do_nothing())


def upsert(
    table: Table, keys: Sequence[str], names: Sequence[str], *, unchanged: Sequence[str] = (), added: Sequence[str] = ()
) -> InsertStatement:
    """Return a statement that inserts a row or updates the row of that key, except its `unchanged` columns.

    The numbers of the columns in `added` are added to the stored ones.
    """
    changed = [name for name in names if name not in (*keys, *unchanged)]

    def extend(insert: Any) -> Executable:
        new = insert.excluded
        updates = {name: table.c[name] + new[name] if name in added else new[name] for name in changed}
        return insert.on_conflict_do_update(index_elements=list(keys), set_=updates)  # type: ignore[no-any-return]

    return InsertStatement(table, names, extend)


class DialectFunction(FunctionElement[Any]):
    """A SQL function of which each database has its own text; `{}` stands for an argument."""

    inherit_cache = True
    texts: ClassVar[Mapping[str, str]]


@compiles(DialectFunction)
def _compile_function(element: DialectFunction, compiler: Any, **options: Any) -> str:
    arguments = [compiler.process(clause, **options) for clause in element.clauses]
    return element.texts[compiler.dialect.name].format(*arguments)


class merge_json(DialectFunction):  # lower case, like a function of SQL
    """One JSON object merged with another; members that are null in the second are removed.

    Both must be flat: PostgreSQL would also remove nested nulls.
    """

    inherit_cache = True
    type = Text()
    texts = MappingProxyType(
        {
            "sqlite": "json_patch({}, {})",
            "postgresql": "CAST(jsonb_strip_nulls(CAST({} AS jsonb) || CAST({} AS jsonb)) AS text)",
        }
    )


class text_position(DialectFunction):  # likewise
    """The index of one text within another, counted from 1; 0 if it does not occur."""

    inherit_cache = True
    type = Integer()
    texts = MappingProxyType({"sqlite": "instr({}, {})", "postgresql": "strpos({}, {})"})


class json_elements(DialectFunction):  # likewise
    """The texts of a JSON list, one row each."""

    inherit_cache = True
    name = "each_of"
    type = Text()
    texts = MappingProxyType({"sqlite": "json_each({})", "postgresql": "jsonb_array_elements_text(CAST({} AS jsonb))"})


class is_among(DialectFunction):  # likewise
    """Whether a number is in a list in JSON.

    A list of parameters would make each length of it another statement, which both databases prepare anew.
    """

    inherit_cache = True
    type = NullType()  # SQLAlchemy compares a Boolean with 1 for SQLite, which then uses no index
    texts = MappingProxyType(
        {
            "sqlite": "{} IN (SELECT value FROM json_each({}) AS given)",
            "postgresql": "{} = ANY(CAST(translate({}, '[]', '{{}}') AS bigint[]))",
        }
    )


class NumberList(TypeDecorator[list[int]]):
    """A list of whole numbers as JSON."""

    impl = Text
    cache_ok = True

    def process_bind_param(self, value: Iterable[int] | None, dialect: object) -> str | None:
        """Return the stored form."""
        return None if value is None else f"[{','.join(map(str, value))}]"


def is_item(column: ColumnElement[Any]) -> ColumnElement[bool]:
    """Return the condition that a position is one of `items`; see `in_batches`."""
    return is_among(column, bindparam("items", type_=NumberList()))


def contains_text(column: ColumnElement[Any], name: str) -> ColumnElement[bool]:
    """Return the condition that the stored text of a column contains a parameter."""
    return text_position(column, bindparam(name, type_=Text())) > literal_column("0")


PAGE_WINDOW = 250  # rows that are examined together for a page of a filtered list


def take_page(
    fetch: Callable[[int, int], Sequence[Row]],
    is_wanted: Callable[[Sequence[Row]], list[bool]],
    before: int,
    limit: int,
) -> tuple[list[Row], int | None]:
    """Return up to `limit` wanted rows before a position, and where to go on if there may be more.

    `fetch(before, count)` returns rows that end with their position, `is_wanted` which of some rows are wanted.
    """
    found: list[Row] = []
    examined = 0
    while examined < MAX_EXAMINED_ROWS:
        rows = fetch(before, PAGE_WINDOW)
        for row, wanted in zip(rows, is_wanted(rows), strict=True):
            if wanted and len(found) == limit:
                return found, before
            if wanted:
                found.append(row)
            before = row[-1]
        examined += len(rows)
        if len(rows) < PAGE_WINDOW:
            return found, None
    return found, before


def position_key(position: int | None) -> PageKey | None:
    """Return the key of a row in a list that is ordered by position; None for none."""
    return None if position is None else (int(position),)
