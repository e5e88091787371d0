"""Questions in the terminal: lists for the arrow keys, lines with a default, hidden lines; Escape goes back."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from bot.text import strip_terminal_codes

if TYPE_CHECKING:
    from questionary import Question

BACK = "Back"
KEYS = "(arrow keys, Enter; Escape goes back)"
Check = Callable[[str], str]


@dataclass(frozen=True, slots=True)
class Option:
    """An entry of a list: what is shown, and the value that is returned for it."""

    title: str
    value: str


def choose(question: str, options: Sequence[Option], *, default: str = "", has_back: bool = True) -> str | None:
    """Return the value of the chosen option; None to go back."""
    import questionary

    choices = [questionary.Choice(strip_terminal_codes(option.title), option.value) for option in options]
    if has_back:
        choices.append(questionary.Choice(BACK, BACK))
    known = default if default in [option.value for option in options] else None
    answer = _ask(questionary.select(question, choices, default=known, instruction=KEYS))
    return None if answer == BACK else answer


def ask_text(question: str, *, default: str = "", check: Check | None = None) -> str | None:
    """Return a line; None to go back. `check` returns what is wrong with an answer, empty if nothing is.

    The `default` is shown until something is typed, and is the answer to Enter alone.
    """
    import questionary

    shown = [("fg:ansibrightblack", default)]
    answer = _ask(questionary.text(question, validate=_validator(check, default), placeholder=shown))
    return answer if answer is None else answer.strip() or default


def ask_secret(question: str) -> str | None:
    """Return a line of which only asterisks are shown; None to go back."""
    import questionary

    answer = _ask(questionary.password(question, validate=_validator(None)))
    return answer if answer is None else answer.strip()


def _validator(check: Check | None, default: str = "") -> Callable[[str], bool | str]:
    def validate(text: str) -> bool | str:
        answer = text.strip() or default
        if not answer:
            return "An answer is needed; Escape goes back."
        return (check(answer) if check else "") or True

    return validate


def _ask(question: "Question") -> str | None:
    """Ask, with Escape for the way back. Raises KeyboardInterrupt for Control-C."""
    from prompt_toolkit.key_binding import KeyBindings, merge_key_bindings

    going_back = KeyBindings()

    @going_back.add("escape", eager=True)
    def go_back(event: Any) -> None:
        event.app.exit(result=None)

    application = question.application
    own_bindings = [application.key_bindings] if application.key_bindings is not None else []
    application.key_bindings = merge_key_bindings([*own_bindings, going_back])
    answer: str | None = question.unsafe_ask()
    return answer
