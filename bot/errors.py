"""Every way Greenroom can fail, and what each means to the caller.

BotError
├── ConfigError                 something a person wrote is wrong; exit code 78
│   ├── CharacterError          a character file
│   ├── SettingError            a variable, a `.env` line, a token
│   ├── PluginError             a plugin or adapter that cannot be loaded
│   └── StoreRefused            what is kept is in use by another process, or cannot be written
├── TryAgain                    something outside is not there just now; exit code 75
│   └── StoreUnavailable        nothing can be kept just now: the database is locked, full, damaged
│       └── LaneLost            nothing of this room, by this process: another one works on it now
├── ModelError                  a model handler could not answer
│   ├── ModelUnavailable        every handler failed, or none is registered
│   │   ├── ModelBusy           this one is busy or out of reach just now; it alone is asked again
│   │   └── BudgetSpent         what may be spent today is spent: nobody is asked
│   └── ModelRefused            the request itself was refused: key, credit, content; never retried
│       └── PromptTooLong       the prompt is longer than the model can read
├── NoAnswer                    the model answered three times with neither a text nor an action
├── DeliveryError               an outgoing part did not (surely) arrive
│   ├── NotSent                 surely not sent; may be tried again
│   ├── Undeliverable           surely not sent; trying again is of no use
│   │   └── TakenAway           what was to be changed was removed there: the rest is not said either
│   └── Unclear                 nobody knows; the platform's rule decides
├── FetchError                  a URL that may not, or could not, be read
├── TemplateError               a prompt template that cannot be compiled
└── IntakeClosed                the inbox takes nothing in any more: the process is stopping

A message says what failed, on what, and what to do about it.
"""


class BotError(Exception):
    """Root of all errors that Greenroom raises on purpose."""


class ConfigError(BotError):
    """Something that a person wrote is wrong; the message names it and the mend."""


class CharacterError(ConfigError):
    """A character file cannot be used."""


class SettingError(ConfigError):
    """A setting is missing or malformed."""


class PluginError(ConfigError):
    """A plugin or adapter cannot be found, loaded, or combined with the others."""


class StoreInaccessible(ConfigError):
    """What is kept is whole, but this process cannot have it: another one has, or it cannot be written."""


class TemporaryError(BotError):
    """Something outside is not there just now."""


class StoreUnavailable(TemporaryError):
    """Nothing can be kept just now; `cause` says why in a word, such as `db_locked`."""

    def __init__(self, message: str, *, cause: str) -> None:
        super().__init__(message)
        self.cause = cause


class LeaseLost(StoreUnavailable):
    """Another process has taken a room over: nothing was written, and what is open there is its work now."""

    def __init__(self) -> None:
        super().__init__("another process works on this room now, and goes on with it", cause="lane_lost")


class ModelError(BotError):
    """A model handler could not answer; the next handler may."""


class ModelUnavailable(ModelError):
    """No handler is registered for the type, or every one failed."""


class ModelBusy(ModelUnavailable):
    """Busy or out of reach just now: asked again, after `retry_after` seconds where that was said."""

    def __init__(self, cause: str, *, retry_after: float | None = None) -> None:
        super().__init__(cause)
        self.retry_after = retry_after


class BudgetSpent(ModelUnavailable):
    """What may be spent today is spent; `setting` is the limit that says so."""

    def __init__(self, setting: str, message: str) -> None:
        super().__init__(message)
        self.setting = setting


class ModelRefused(ModelError):
    """The provider refuses this request however often it is sent."""


class PromptTooLong(ModelRefused):
    """The prompt is longer than the model can read; a shorter one may do."""


class NoAnswer(BotError):
    """The model answered as often as it may, each time with neither a text nor an action."""


class DeliveryError(BotError):
    """An outgoing part did not, or not surely, arrive."""


class NotSent(DeliveryError):
    """Surely not sent: it may be tried again, after `retry_after` seconds if given."""

    def __init__(self, cause: str, *, retry_after: float | None = None) -> None:
        super().__init__(cause)
        self.retry_after = retry_after


class Undeliverable(DeliveryError):
    """Surely not sent, and it never will be: too long, blocked, gone."""


class MessageGone(Undeliverable):
    """What was to be changed was removed there, which was somebody's will: nothing of it is said again."""


class DeliveryUnknown(DeliveryError):
    """The platform may or may not have it: time-out, reset, server error."""


class FetchError(BotError):
    """A URL may not be read, or could not be."""


class TemplateError(BotError):
    """A prompt template cannot be compiled."""


class InboxClosed(BotError):
    """The inbox takes nothing in any more."""
