"""The emulator as `bot adapter test x` drives it: one person who replies to a post of the first account."""

from collections.abc import Callable, Mapping, Sequence

from adapters.x.emulator.state import PlatformState
from bot.testing import EventRecorder, PlatformControl, SendFault

MAX_ANSWER_LENGTH = 1250  # of an answer that fits into MAX_REPLY_POSTS posts


class XControl(PlatformControl):
    """Posts mentions; X counts one as read once the account asks for newer ones.

    `read_bounds` returns the bound below which each poll of the account did not read, in order; `fail` makes the next
    post fail.
    """

    def __init__(
        self,
        state: PlatformState,
        recorder: EventRecorder,
        bot_id: str,
        *,
        read_bounds: Callable[[], Sequence[int]],
        fail: Callable[[SendFault], None],
    ) -> None:
        super().__init__()
        self.changes = recorder
        self.max_answer_length = MAX_ANSWER_LENGTH
        self._state, self._bot_id, self._read_bounds, self._fail = state, bot_id, read_bounds, fail
        self._root = ""  # the post of the account that the person replies to
        self._posts: dict[str, str] = {}  # by event
        self._delivered: list[tuple[str, int]] = []  # events, and after how many polls they were posted
        self._acknowledged: list[str] = []

    async def post(
        self, text: str, *, message_id: str, event_id: str, revision: int = 0, files: Mapping[str, str] | None = None
    ) -> None:
        """Reply to a post of the account, or return a reply to its next poll again."""
        if revision or files:
            raise NotImplementedError  # posts of people are not edited, and have pictures only
        polls = len(self._read_bounds())
        if event_id in self._posts:
            self._state.repeated.add(self._posts[event_id])
        else:
            person = self._state.user_id_of("kim")
            self._root = self._root or self._state.create_post(self._bot_id, "Ask me anything.").id
            self._posts[event_id] = self._state.create_post(person, text, reply_to_id=self._root).id
        self._delivered.append((event_id, polls))

    def acknowledged(self) -> Sequence[str]:
        """Return the events after which the account has asked for newer posts."""
        bounds = self._read_bounds()
        for event in list(self._delivered):
            event_id, polls = event
            post_id = self._posts[event_id]
            if post_id not in self._state.repeated and any(bound >= int(post_id) for bound in bounds[polls + 1 :]):
                self._delivered.remove(event)
                self._acknowledged.append(event_id)
        return self._acknowledged

    def shown(self) -> Sequence[str]:
        """Return the replies of the account."""
        return [post.text for post in self._state.posts_by(self._bot_id) if post.id != self._root]

    def fail_next_send(self, fault: SendFault) -> None:
        """Make the next post fail in this way."""
        self._fail(fault)
