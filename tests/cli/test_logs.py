"""The format of log lines, and the removal of secrets and control codes."""

import errno
import json
import logging
import os
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from bot import logs

logger = logging.getLogger("bot.test")


class TerminalPair:
    """A pipe as the target of the log."""

    def __init__(self) -> None:
        self.reading, self.fd = os.pipe()

    def lines(self) -> list[str]:
        """Close the writing end; return the logged lines."""
        os.close(self.fd)
        with open(self.reading, encoding="utf-8") as file:
            return file.read().splitlines()


@pytest.fixture
def paper() -> Iterator[TerminalPair]:
    pair = TerminalPair()
    yield pair
    for fd in (pair.reading, pair.fd):
        try:
            os.close(fd)
        except OSError:
            continue  # read to its end already


def test_a_line_has_time_level_logger_and_message(paper: TerminalPair) -> None:
    with logs.configure_logging(fd=paper.fd):
        logger.info("%s came in", "Bob")
        logger.debug("not this")
    [line] = paper.lines()
    assert line.endswith(" INFO    bot.test: Bob came in")


def test_json_is_an_object_a_line(paper: TerminalPair) -> None:
    with logs.configure_logging(format="json", fd=paper.fd):
        logger.warning("a “quote” and a\nbreak")
    [line] = paper.lines()
    document = json.loads(line)
    assert document["time"].endswith("+00:00")
    assert {key: document[key] for key in ("level", "logger", "message")} == {
        "level": "WARNING",
        "logger": "bot.test",
        "message": "a “quote” and a\\nbreak",
    }


def test_secrets_and_terminal_codes_are_removed(paper: TerminalPair) -> None:
    with logs.configure_logging(fd=paper.fd, secrets={"hunter2hunter2", "hunter2hunter2-long"}):
        logger.info("key %s\x1b[31m red\r\n2026 INFO bot: forged", "hunter2hunter2-long")
        try:
            raise ValueError("it was hunter2hunter2")
        except ValueError:
            logger.exception("failed")
    text = "\n".join(paper.lines())
    assert "hunter2" not in text
    assert "key [redacted] red\\r\\n2026 INFO bot: forged" in text
    assert "ValueError: it was [redacted]" in text


@pytest.mark.failure("G-04")
def test_invisible_characters_are_escaped_and_emoji_are_kept(paper: TerminalPair) -> None:
    with logs.configure_logging(fd=paper.fd):
        logger.info("Ow\u00adner\u200b\u202e\u2066\ufeff \U000e0041 👩\u200d💻 ❤\ufe0f می\u200cخواهم")
    seen = r"Ow\xadner\u200b\u202e\u2066\ufeff \U000e0041 "
    assert paper.lines()[0].endswith(seen + "👩\u200d💻 ❤\ufe0f می\u200cخواهم")
    assert (
        logs.strip_terminal_codes("\ud800") == r"\ud800"
    )  # logged, no report of a test could carry it to another process


def test_the_token_is_removed_from_urls(paper: TerminalPair) -> None:
    with logs.configure_logging(fd=paper.fd):
        logger.info('"GET /?token=abc123&x=1 HTTP/1.1"')
    assert '"GET /?token=[redacted]&x=1 HTTP/1.1"' in paper.lines()[0]


@pytest.mark.parametrize("secret", ["ghp_" + "a1B2" * 9, "sk-proj-" + "x9Y8" * 5, "https://kim:pass@example.org/feed"])
def test_what_has_the_form_of_a_secret_is_removed_from_warnings_and_errors(paper: TerminalPair, secret: str) -> None:
    with logs.configure_logging(fd=paper.fd):
        logger.info("not searched: %s", secret)
        logger.warning("the server refuses %s with 403", secret)
        try:
            raise ValueError(f"it was {secret}")
        except ValueError:
            logger.exception("failed")
    lines = paper.lines()
    assert lines[0].endswith(f"not searched: {secret}")
    assert lines[1].endswith("the server refuses [redacted] with 403")
    assert lines[-1].strip() == "ValueError: it was [redacted]"


def test_a_secret_at_the_truncation_is_removed_completely(paper: TerminalPair) -> None:
    with logs.configure_logging(fd=paper.fd, secrets={"hunter2hunter2"}):
        logger.info("%s", "x" * (logs.MAX_MESSAGE_LENGTH - 7) + "hunter2hunter2")
    assert "hunter" not in paper.lines()[0]


@pytest.mark.parametrize(("level", "is_shown"), [("INFO", False), ("DEBUG", True)])
def test_the_source_of_a_warning_is_shown_only_for_debugging(paper: TerminalPair, level: str, is_shown: bool) -> None:
    with logs.configure_logging(level=level, fd=paper.fd):
        try:
            raise ValueError("a plugin's fault")
        except ValueError:
            logger.warning("action failed", exc_info=True)
    text = "\n".join(paper.lines())
    assert "action failed" in text
    assert ("Traceback" in text) is is_shown


@pytest.mark.long
@pytest.mark.failure("K-15")
def test_a_blocked_reader_loses_lines_but_does_not_block(paper: TerminalPair) -> None:
    with logs.configure_logging(fd=paper.fd):
        for number in range(logs.MAX_QUEUED_RECORDS + 5000):
            logger.info("%d %s", number, "x" * 200)
    os.set_blocking(paper.reading, False)
    assert os.read(paper.reading, 100)


@pytest.mark.failure("K-15")
def test_a_full_disk_only_loses_lines() -> None:
    full = os.open("/dev/full", os.O_WRONLY)
    try:
        with logs.configure_logging(fd=full):
            logger.error("nobody will know")
    finally:
        os.close(full)


@pytest.mark.failure("K-15")
def test_repeated_warnings_of_the_same_place_are_limited_and_counted(paper: TerminalPair) -> None:
    with logs.configure_logging(fd=paper.fd):
        for number in range(logs.MAX_PER_LOCATION + 50):
            logger.warning("request %d was odd", number)
        logger.warning("something else")
    lines = [line.split(": ", 1)[1] for line in paper.lines()]
    assert lines[logs.MAX_PER_LOCATION - 1 :] == [
        f"request {logs.MAX_PER_LOCATION - 1} was odd",
        "something else",
        "50 more lines like the last ones of bot.test were left out",
    ]


def test_library_messages_are_logged_only_for_debugging(paper: TerminalPair) -> None:
    with logs.configure_logging(fd=paper.fd):
        logging.getLogger("httpx").info("HTTP Request: POST")
    assert paper.lines() == []


def test_the_logging_configuration_is_restored(paper: TerminalPair) -> None:
    root = logging.getLogger()
    before = root.level, list(root.handlers)
    with logs.configure_logging(level="DEBUG", fd=paper.fd):
        assert root.level == logging.DEBUG
    assert (root.level, list(root.handlers)) == before


def test_characters_to_keep_are_not_removed() -> None:
    assert logs.strip_terminal_codes("a\nb\tc\x1b[0m", allowed="\n") == "a\nb\\tc"
    assert logs.strip_terminal_codes("тест — 日本 👩‍👧") == "тест — 日本 👩‍👧"


def test_a_warning_about_what_stays_wrong_is_written_once_also_after_the_next_start(
    paper: TerminalPair, tmp_path: Path
) -> None:
    for _ in range(2):
        with logs.configure_logging(fd=paper.fd, reported=logs.ReportedWarnings(tmp_path / "data")):
            for name in ("faq.md", "tides.md", "faq.md"):
                logger.warning("%s does not exist", name, extra={"once": True})
            logger.warning("the server is busy")
            logger.warning("the server is busy")
    written = [line.split("bot.test: ")[1] for line in paper.lines()]
    assert written == ["faq.md does not exist", "tides.md does not exist", *["the server is busy"] * 4]
    [file] = (tmp_path / "data").iterdir()
    assert file.stat().st_mode & 0o077 == 0


def test_a_warning_not_met_for_a_month_and_a_warning_that_was_over_are_reported_again(tmp_path: Path) -> None:
    now = datetime(2026, 1, 1, tzinfo=UTC)

    def report(*texts: str, subject: str = "mara.json") -> list[str]:
        return logs.ReportedWarnings(tmp_path, lambda: now).admit_all(texts, subject)

    assert report("a", "b") == ["a", "b"]
    now += timedelta(days=20)
    assert report("a", subject="robin.json") == ["a"]
    assert report("a") == []
    assert report("a", "b") == ["b"]
    now += timedelta(days=20)
    assert report("a", "b") == []
    now += timedelta(days=31)
    assert report("a", "b") == ["a", "b"]


@pytest.mark.parametrize("content", ["", "[]", "{", '{"a": 1}', "\0"])
def test_a_damaged_file_of_reported_warnings_costs_only_that_they_are_reported_again(
    tmp_path: Path, content: str
) -> None:
    (tmp_path / "reported.json").write_text(content)
    assert logs.ReportedWarnings(tmp_path).admit_all(["a"], "mara.json") == ["a"]
    assert logs.ReportedWarnings(tmp_path).admit_all(["a"], "mara.json") == []


def test_where_nothing_can_be_stored_warnings_are_reported_at_each_start(tmp_path: Path) -> None:
    (tmp_path / "data").write_text("a file, not a folder")
    for _ in range(2):
        assert logs.ReportedWarnings(tmp_path / "data").admit_all(["a"], "mara.json") == ["a"]


@pytest.mark.failure("K-16")
def test_everything_that_fails_for_lack_of_a_file_descriptor_is_a_single_line(paper: TerminalPair) -> None:
    with logs.configure_logging(fd=paper.fd):
        for number in range(5):
            try:
                raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))
            except OSError as cause:
                logger.error("connection %d is not accepted", number, exc_info=True)
                logger.warning("a model failed: %s", cause)
                try:
                    raise ValueError("the file cannot be read") from cause
                except ValueError:
                    logger.exception("reading failed")
        logger.warning("something else")
    first, second = paper.lines()
    assert " ERROR   bot.logs: no file descriptor is free: " in first
    assert second.endswith(" bot.test: something else")


def test_an_error_that_is_its_own_cause_is_logged_like_any_other(paper: TerminalPair) -> None:
    with logs.configure_logging(fd=paper.fd):
        try:
            try:
                raise ValueError("the file cannot be read")
            except ValueError as error:
                raise error from error
        except ValueError:
            logger.warning("reading failed", exc_info=True)
        logger.warning("something else")
    assert [line.rpartition(": ")[2] for line in paper.lines()][-1] == "something else"
