"""Transcripts of videos on YouTube, by the library youtube-transcript-api, where it is installed."""

import asyncio
import logging
import re
from collections.abc import Mapping
from importlib import import_module
from importlib.util import find_spec
from typing import Any

from bot.platform import find_network

logger = logging.getLogger(__name__)
VIDEO = re.compile(
    r"https?://(?:(?:www\.|m\.)?youtube\.com/(?:watch\?(?:[^#\s]*&)?v=|shorts/|live/)|youtu\.be/)([\w-]{11})(?![\w-])"
)
ORIGIN = "https://www.youtube.com/"
TIMEOUT = 5.0  # seconds, for each of its three requests
LANGUAGES = ("en", "de", "es", "fr", "pt", "it", "ja", "ko", "zh", "ru", "hi", "ar")


def find_video(url: str) -> str:
    """Return the id of the video at a URL of YouTube; empty for any other."""
    found = VIDEO.match(url)
    return found[1] if found is not None else ""


async def read_transcript(video: str, environment: Mapping[str, str], origin: str = ORIGIN) -> str:
    """Return what is said in a video, one line a caption; empty where it has no captions or the library is missing.

    The library has its own HTTP client: it gets a session that reaches `origin` alone, with the operator's proxy.
    """
    if find_spec("youtube_transcript_api") is None:
        return ""
    return await asyncio.to_thread(_fetch, video, environment, origin)


def _fetch(video: str, environment: Mapping[str, str], origin: str) -> str:
    library, requests = import_module("youtube_transcript_api"), import_module("requests")
    with build_session(environment, origin) as session:
        try:
            transcripts = library.YouTubeTranscriptApi(http_client=session).list(video)
            try:
                found = transcripts.find_transcript(LANGUAGES)
            except library.NoTranscriptFound:
                found = next(iter(transcripts))
            return "\n".join(snippet.text for snippet in found.fetch())
        except (
            library.CouldNotRetrieveTranscript,
            requests.RequestException,
            StopIteration,
            KeyError,
            ValueError,
        ) as error:
            logger.info("no transcript of the video %s: %s", video, type(error).__name__)
            return ""


def build_session(environment: Mapping[str, str], origin: str = ORIGIN) -> Any:
    """Return a session of `requests` that sends what is meant for YouTube to `origin`, and nothing anywhere else."""
    requests = import_module("requests")
    network = find_network(origin, environment)

    class Guarded(requests.adapters.HTTPAdapter):  # type: ignore[misc,name-defined]  # imported when it is needed
        def send(self, request: Any, **details: Any) -> Any:
            if not request.url.startswith(ORIGIN):
                raise requests.RequestException("a transcript is read from www.youtube.com alone")
            request.url = origin + request.url.removeprefix(ORIGIN)
            return super().send(request, **{**details, "timeout": TIMEOUT})

    session = requests.Session()
    session.trust_env = False
    session.max_redirects = 3
    session.proxies = {"https": network.proxy, "http": network.proxy} if network.proxy else {}
    session.verify = environment.get("SSL_CERT_FILE") or True
    for scheme in ("http://", "https://"):
        session.mount(scheme, Guarded())
    return session
