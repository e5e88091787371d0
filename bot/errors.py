"""Every way Greenroom can fail, and what each means to the caller.

BotError
├── ConfigError                 something a person wrote is wrong; exit code 78
│   ├── CharacterError          a character file
│   ├── SettingError            a variable, a `.env` line, a token
│   ├── PluginError             a plugin or adapter that cannot be loaded
│   │   └── PluginCodeError     its code is broken: the others run without it
│   └── StoreInaccessible       the store is in use by another process, or cannot be written
├── TemporaryError              something outside is not available at the moment; exit code 75
│   └── StoreUnavailable        nothing can be stored: the database is locked, full, damaged
│       └── LeaseLost           another process owns the room now
├── ModelError                  a model handler could not answer
│   ├── ModelUnavailable        every handler failed, or none is registered
│   │   ├── ModelBusy           this one is busy or slow; retried with back-off
│   │   ├── ModelTooSlow        a server on this machine did not answer in time; not retried
│   │   ├── ModelUnreachable    no connection to its server can be made; not retried
│   │   └── BudgetSpent         the budget of the day is spent: no handler is asked
│   ├── ModelRefused            the request itself was refused: key, credit, content; never retried
│   │   └── PromptTooLong       the prompt is longer than the model can read
│   └── InvalidAnswer           what the server returned is no answer; retried once
├── AnswerRefused               a message cannot be answered again, or stopped, as it is now
├── NoAnswer                    the model answered three times with neither a text nor an action
├── DeliveryError               an outgoing part was not, or not certainly, delivered
│   ├── NotSent                 certainly not sent; may be tried again
│   ├── Undeliverable           certainly not sent; trying again is of no use
│   │   └── MessageGone         a user deleted it: the rest is not sent either
│   └── DeliveryUnknown         it may have arrived: the platform is asked, or it is repeated
│       └── DeliveryHeld        it cannot be found out, and must not be repeated: an operator decides
├── FetchError                  a URL that may not, or could not, be read
├── MemoryLimitReached          it takes more memory than MEMORY_LIMIT allows, or than is free of it
├── TemplateError               a prompt template that cannot be compiled
├── ComponentDataError          data of an entity component that do not fit the type that a plugin declares
└── InboxClosed                 the inbox accepts nothing more: the process is stopping

A message says what failed, on what, and what to do about it.
"""

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass


class BotError(Exception):
    """Root of all errors that Greenroom raises on purpose."""


class ConfigError(BotError):
    """Something that a person wrote is wrong; the message names it and how to fix it."""


@dataclass(frozen=True, slots=True)
class FileProblem:
    """What is wrong at one place of a file: line and column count from 1, and are 0 where the place is not known.

    `path` names the part, as in `settings.discord.rooms`; it is empty for the file as a whole.
    """

    message: str
    line: int = 0
    column: int = 0
    path: str = ""


class CharacterError(ConfigError):
    """A character file cannot be used; `problems` has the places, as far as they are known."""

    def __init__(self, message: str, problems: Sequence[FileProblem] = ()) -> None:
        super().__init__(message)
        self.problems = tuple(problems)

    @classmethod
    def combine(cls, errors: "Sequence[CharacterError]") -> "CharacterError":
        """Return one error with the messages and places of several."""
        return cls("\n".join(map(str, errors)), [problem for error in errors for problem in error.problems])


class SettingError(ConfigError):
    """A setting is missing or malformed."""


class PluginError(ConfigError):
    """A plugin or adapter cannot be found, loaded, or combined with the others."""


class PluginCodeError(PluginError):
    """The code of a plugin, or of an adapter, cannot be imported, or holds no plugin.

    `cause` says why, without the plugin's name. `may_bring` has the names among `store` and `models` that its code
    may pass to `Plugin`.
    """

    def __init__(self, message: str, cause: str, may_bring: Collection[str]) -> None:
        super().__init__(message)
        self.cause = cause
        self.may_bring = frozenset(may_bring)


class StoreInaccessible(ConfigError):
    """The store is intact, but another process uses it, or it cannot be written."""


class TemporaryError(BotError):
    """Something outside the process is not available at the moment."""


class StoreUnavailable(TemporaryError):
    """Nothing can be stored at the moment; `cause` is a code such as `db_locked`."""

    def __init__(self, message: str, *, cause: str) -> None:
        super().__init__(message)
        self.cause = cause


class UnreadableRow(BotError):
    """A stored row holds what this code never wrote; the rest of the store is not affected."""


class LeaseLost(StoreUnavailable):
    """Another process owns the room now: nothing was written, and its open work is continued there."""

    def __init__(self) -> None:
        super().__init__("another process works on this room now, and goes on with it", cause="lane_lost")


class AlreadyReferred(BotError):
    """Another process has referred this person to help: nothing was written."""


class ModelError(BotError):
    """A model handler could not answer; the next handler may."""


class ModelUnavailable(ModelError):
    """No handler is registered for the type, or every one failed."""


class ModelBusy(ModelUnavailable):
    """Busy at the moment, or too slow: retried, after `retry_after` seconds where that is given."""

    def __init__(self, cause: str, *, retry_after: float | None = None) -> None:
        super().__init__(cause)
        self.retry_after = retry_after


class ModelTooSlow(ModelUnavailable):
    """A server on this machine did not answer in time: not retried, it would begin again with the same work."""


class ModelUnreachable(ModelUnavailable):
    """No connection to the server can be made: refused, an unknown host, an invalid certificate."""


class BudgetSpent(ModelUnavailable):
    """The budget of the day is spent; `setting` is the limit."""

    def __init__(self, setting: str, message: str) -> None:
        super().__init__(message)
        self.setting = setting


class ModelRefused(ModelError):
    """The provider refuses this request, however often it is sent."""


class PromptTooLong(ModelRefused):
    """The prompt is longer than the model can read; a shorter one may succeed."""


class ToolsRefused(ModelRefused):
    """The provider refuses the tools of a request, for example the schema of one; fewer of them may be accepted."""


class InvalidAnswer(ModelError):
    """The server returned something else than an answer: a web page, a body of another form."""


class AnswerRefused(BotError):
    """A message cannot be answered again, or stopped, as it is now; `code` says why, such as `in_progress`."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


class NoAnswer(BotError):
    """The model answered as often as it may, each time with neither a text nor an action."""


class DeliveryError(BotError):
    """An outgoing part was not, or not certainly, delivered."""


class NotSent(DeliveryError):
    """The part was certainly not sent: it may be tried again, after `retry_after` seconds if given."""

    def __init__(self, cause: str, *, retry_after: float | None = None) -> None:
        super().__init__(cause)
        self.retry_after = retry_after


class Undeliverable(DeliveryError):
    """The part was not sent and never will be: too long, blocked, gone."""


class MessageGone(Undeliverable):
    """A user deleted the message that was to be changed: the rest of it is not sent either."""


class DeliveryUnknown(DeliveryError):
    """The platform may or may not have the part: time-out, reset, server error.

    It is asked for, or repeated, after `retry_after` seconds if given.
    """

    def __init__(self, cause: str, *, retry_after: float | None = None) -> None:
        super().__init__(cause)
        self.retry_after = retry_after


class DeliveryHeld(DeliveryUnknown):
    """The platform may have the part, cannot be asked, and must not be sent it again: an operator decides."""


class FetchError(BotError):
    """A URL may not be read, or could not be; `status` is the HTTP status that its server answered, if it did."""

    def __init__(self, message: str, status: int | None = None) -> None:
        super().__init__(message)
        self.status = status


class MemoryLimitReached(BotError):
    """Something takes more memory than MEMORY_LIMIT allows, or than is free of it at the moment."""


class TemplateError(BotError):
    """A prompt template cannot be compiled."""


class ComponentDataError(BotError):
    """The data of an entity component do not fit its registered type; nothing was stored."""


class InboxClosed(BotError):
    """The inbox accepts nothing more."""


def causes_of(error: BaseException | None) -> Iterator[BaseException]:
    """Yield an error and those that led to it, each once: `raise error from error` makes a circle of them."""
    seen: set[int] = set()
    while error is not None and id(error) not in seen:
        seen.add(id(error))
        yield error
        error = error.__cause__ or error.__context__
