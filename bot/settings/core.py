"""`CoreSettings`: the variables of every character."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import ClassVar
from uuid import UUID

from pydantic import ByteSize, Field

from bot.concurrency.tasks import DEFAULT_MEMORY_LIMIT
from bot.settings.model import CommaList, HostList, SettingsModel
from bot.settings.time_zones import TimeZoneName


def room_setting(name: str, room_id: UUID) -> str:
    """Return the name under which the choice of a room stands among the settings of its world."""
    return f"{name}:{room_id}"


class CoreSettings(SettingsModel):
    """The settings of every character, whatever platforms it is connected to."""

    CHARACTER_SETTINGS = frozenset(
        [
            "CONVERSATION_LENGTH",
            "MEMORY_BYTES",
            "LATEST_RESPONSE",
            "BURST_PAUSE",
            "STREAMING",
            "ON_EDIT",
            "SHOULD_RESPOND_BYPASS_TYPES",
            "SHOULD_RESPOND_BYPASS_SOURCES",
            "RESPOND_TO_BOTS",
            "RESPONSIVENESS",
            "IGNORE_BASIC_CAPABILITIES",
            "USE_MULTI_STEP",
            "MAX_MULTISTEP_ITERATIONS",
            "VOICE_REPLIES",
            "TIMEZONE",
        ]
    )
    # What a world may choose for itself: no secret, and nothing that concerns another world.
    WORLD_SETTINGS: ClassVar[frozenset[str]] = frozenset(
        {
            "CONVERSATION_LENGTH",
            "ON_EDIT",
            "RESPOND_TO_BOTS",
            "RESPONSIVENESS",
            "SHOULD_RESPOND_BYPASS_TYPES",
            "TIMEZONE",
        }
    )
    ROOM_SETTINGS: ClassVar[frozenset[str]] = frozenset({"RESPONSIVENESS"})  # what a room may choose, too

    bot_data_dir: Path = Field(Path("data"), description="Where the bot keeps its files.")
    bot_character: Path | None = Field(
        None, description="The character's file that commands use without -c; by default the bundled one."
    )
    bot_role: str = Field(
        "all",
        pattern="^(all|gateway|worker|sender)$",
        description="What `bot run` does, where several processes share a PostgreSQL database: `gateway` (take "
        "messages in), `worker` (answer them), `sender` (send the answers), `all`.",
    )
    backup_every: float = Field(
        0, ge=0, description="How many hours lie between two copies of the database that `bot run` makes; 0 for none."
    )
    backup_keep: int = Field(7, ge=1, description="How many of these copies are kept; older ones are deleted.")
    backup_dir: Path | None = Field(
        None, description="The folder of these copies; by default `backups` in BOT_DATA_DIR."
    )
    memory_limit: ByteSize = Field(
        ByteSize(DEFAULT_MEMORY_LIMIT),
        ge=16 * 2**20,
        description="How much memory files, uploads, documents and long or large answers of models may take together, "
        "in bytes or as in 256MiB. What does not fit waits, and what is larger is refused. The rest of the program "
        "takes about 200 MiB.",
    )
    log_level: str = Field("INFO", pattern="(?i)^(DEBUG|INFO|WARNING|ERROR)$", description="How much is logged.")
    log_format: str = Field("text", pattern="^(text|json)$", description="How it is logged: text or json.")
    timezone: TimeZoneName = Field(
        "UTC",
        description="The time zone of dates and times in prompts, of scheduled tasks and of quiet hours, such as "
        "Europe/Berlin. A character and a world may have another.",
    )
    conversation_length: int = Field(
        20, ge=1, le=500, description="How many of the last messages of a room the model is shown."
    )
    memory_bytes: int = Field(
        600, ge=0, le=20_000, description="How many bytes of each prompt tell what people told before; 0 for none."
    )
    private_facts: str = Field(
        "person",
        pattern="^(person|room)$",
        description="Where facts are used that a person told alone with the bot: `person` (wherever they talk with it "
        "alone by the same account of a platform, or on the web with the same token and `user`), `room` (only there).",
    )
    response_timeout: int = Field(
        3_600_000, ge=1000, description="How long one message may take in all, in milliseconds."
    )
    latest_response: str = Field(
        "room",
        pattern="^(room|author|queue)$",
        description="What a newer message does to an answer that is not out yet: `room` (the newer one takes "
        "it over), `author` (only if the same person wrote it), `queue` (nothing; they follow one another).",
    )
    burst_pause: int | None = Field(
        None,
        ge=0,
        le=10_000,
        description="How long to wait after a message whether more of it comes, in milliseconds; what comes "
        "by then is answered together. Unset, it depends on how the person writes: nothing after single messages, at "
        "most 1500 after each of several in a row.",
    )
    streaming: bool = Field(
        True,
        description="Whether a reply is seen while it is written, where the platform can change what was "
        "said; otherwise every reply is sent when it is whole.",
    )
    on_edit: str = Field(
        "ignore",
        pattern="^(ignore|rerun)$",
        description="What the edit of a message that has its outcome already does: `ignore` (it is "
        "remembered), `rerun` (it is answered again, and the old answer changed where the platform can). A message "
        "that was ignored and names the bot now is answered either way.",
    )
    should_respond_bypass_types: CommaList = Field(
        (), description="Kinds of room in which every message is answered, beside DM, VOICE_DM, SELF and API."
    )
    should_respond_bypass_sources: CommaList = Field(
        (), description="Sources whose every message is answered, beside client_chat, api and postman."
    )
    responsiveness: str = Field(
        "balanced",
        pattern="^(called|reserved|balanced|lively)$",
        description="How readily the bot speaks in groups without being called: `called` (never), `reserved`, "
        "`balanced`, `lively`. What is not clear from the talk, a small model decides.",
    )
    respond_to_bots: bool = Field(False, description="Whether other bots are answered.")
    link_hosts: HostList = Field(
        (),
        description="Hosts to which links in replies may carry data, such as example.org, with all below it. "
        "A link to another host whose query or path is longer than usual leaves as words that nothing opens. "
        "What the character's file says here does not count.",
    )
    messages_per_person: int | None = Field(
        None,
        ge=0,
        description="How many messages of one person are looked at in a minute, and twice as many at once; "
        "what is more stays unanswered, and costs nothing. 0 for no limit. Unset, it is 10 on Discord, "
        "Telegram and X themselves, and none on the web page, in the terminal and on servers of your own.",
    )
    messages_per_room: int | None = Field(
        None, ge=0, description="The same for each room, all writers together. Unset, it is 60 there."
    )
    messages_per_world: int | None = Field(
        None, ge=0, description="The same for each server or group of rooms; unset, 300 there."
    )
    ignore_basic_capabilities: bool = Field(
        False, description="Whether to leave out the bootstrap plugin (its actions and providers)."
    )
    use_multi_step: bool = Field(
        False, description="Whether an answer may take several rounds, each seeing the last one's results."
    )
    max_multistep_iterations: int = Field(6, ge=1, le=6, description="How many such rounds at most.")
    registry_url: str = Field(
        "",
        description="A list of plugins beside the one that comes with Greenroom, for `bot plugin search` and "
        "`bot plugin add`: an https address, or the path of a file.",
    )
    voice_replies: str = Field(
        "voice",
        pattern="^(never|voice|always)$",
        description="Which replies are spoken too, where a model can speak and the platform plays recordings: "
        "`voice` (those to voice messages), `always`, `never`.",
    )
    voice_max_length: int = Field(
        1000,
        ge=1,
        le=4096,
        description="How many characters a reply may have that is spoken; a longer one is only written.",
    )
    max_crashed_starts: int = Field(
        3,
        alias="CRASH_LOOP_BOOTS",
        ge=0,
        description="After how many crashed starts within five minutes `bot run` leaves every platform but "
        "the web page off, until those minutes are over; 0 for never.",
    )

    def for_world(self, overrides: Mapping[str, str], room_ids: Sequence[UUID] = ()) -> "CoreSettings":
        """Return the settings with the choices of a world; raises ValueError for an invalid one.

        Only the names in `WORLD_SETTINGS` may be chosen. With `room_ids`, those of a room and of the rooms around it,
        what is chosen for the first of them that has a choice of its own counts.
        """
        values = {name: value for name, value in overrides.items() if name in self.WORLD_SETTINGS}
        for room_id in reversed(room_ids) if overrides else ():
            chosen = {name: overrides.get(room_setting(name, room_id), "") for name in self.ROOM_SETTINGS}
            values |= {name: value for name, value in chosen.items() if value}
        return CoreSettings.model_validate({**self.model_dump(by_alias=True), **values}) if values else self


class NetworkSettings(SettingsModel):
    """Standard variables for every outgoing connection."""

    CHARACTER_SETTINGS = frozenset()

    https_proxy: str | None = Field(None, description="The proxy for https addresses, as http://host:port.")
    http_proxy: str | None = Field(None, description="The proxy for http addresses.")
    no_proxy: str | None = Field(None, description="Hosts reached without a proxy, separated by commas.")
    ssl_cert_file: str | None = Field(None, description="Certificates to trust instead of the system's.")
