"""The errors of real servers in their own words, most of them from public issues, shortened.

Each table has the server, the status and the body, or its message alone; each case is a model of its own, because what
a server refuses is remembered for each.
"""

from collections.abc import AsyncIterator
from typing import Any

import pytest

from bot.models import InvalidAnswer, ModelBusy, ModelError, ModelRefused, PromptTooLong, TextRequest, Tool
from bot.models.handler import ModelProfile
from bot.models.openai_compatible import complete
from bot.testing import AgentHarness
from plugins.openai import Client
from tests.plugins.loopback import Answer, Loopback, Sink, loopback
from tests.plugins.openai.wire import KEY, completion, open_harness

ROLL = Tool("ROLL", "Roll a die.", {"type": "object"})
REFUSAL = "I would rather not answer that."
SAMPLING: dict[str, Any] = {
    **{"max_tokens": 9000, "temperature": 0.7, "top_p": 0.9, "top_k": 5, "seed": 1, "stop": ("x",)},
    **{"frequency_penalty": 0.1, "presence_penalty": 0.1, "repetition_penalty": 1.1},
}


@pytest.fixture
async def api() -> AsyncIterator[Loopback]:
    async with loopback() as found:
        yield found


@pytest.fixture
async def there(api: Loopback) -> AsyncIterator[AgentHarness]:
    async with open_harness(api.url) as harness:
        yield harness


def error(message: str, **more: Any) -> dict[str, Any]:
    return {"error": {"message": message, **more}}


async def ask(harness: AgentHarness, model: str, **details: Any) -> str:
    """Return the text of the answer, or the class and the message of the error."""
    request = TextRequest("the prompt", system="the system prompt", **{**SAMPLING, **details})
    try:
        text = (await complete(harness.agent.services[Client], model, request)).text
    except ModelError as raised:
        text = f"{type(raised).__name__} {raised}"
    assert KEY not in text
    return text


TOO_LONG: list[tuple[str, int, Any, int | None]] = [
    ("vllm", 400, error("max_tokens must be at least 1, got -186."), None),
    ("vllm", 400, error("The decoder prompt (length 5075) is longer than the maximum model length of 4096."), 4096),
    (
        "sglang",
        400,
        error("Requested token count exceeds the model's maximum context length of 202752 tokens."),
        202752,
    ),
    (
        "tgi",
        422,
        {"error": "`inputs` tokens + `max_new_tokens` must be <= 32768. Given: 82004 `inputs` tokens and 2048"},
        32768,
    ),
    ("tgi", 422, {"error": "Input validation error: `inputs` must have less than 4096 tokens. Given: 4545"}, 4096),
    ("tgi", 200, {"error": "`inputs` tokens + `max_new_tokens` must be <= 4096", "error_type": "validation"}, 4096),
    ("dashscope", 400, error("<400> InvalidParameter: Range of input length should be [1, 30720]"), 30720),
    ("moonshot", 400, error("Your request exceeded model token limit: 262144 (requested: 269030)"), 262144),
    ("z.ai", 400, error("Prompt exceeds max length", code="1261"), None),
    ("minimax", 400, error("invalid params, context window exceeds limit (2013)"), None),
    ("x.ai", 400, {"error": "This model's maximum prompt length is 131072 but the request contains 136973"}, 131072),
    ("llama.cpp", 500, error("Context size has been exceeded.", code=500, type="server_error"), None),
    ("llama.cpp", 200, error("too large", code=400, type="exceed_context_size_error", n_ctx=8192), 8192),
    ("llama-cpp-python", 500, error("Requested tokens (2285) exceed context window of 2048"), 2048),
    ("sambanova", 400, error("The maximum context length of DeepSeek-V3-0324 is 32768. It takes 39732"), 32768),
    ("anthropic", 400, error("input length and `max_tokens` exceed context limit: 197202 + 21333 > 200000"), 200000),
    ("gemini", 400, [error("The input token count (1196265) exceeds the maximum allowed (1048575).")], 1048575),
    ("mistral", 400, error("Prompt contains 131073 tokens, too large for model with 131072 maximum context"), 131072),
    ("bedrock", 400, error("Input is too long for requested model."), None),
    ("cohere", 400, {"message": "too many tokens: total number of tokens in the prompt cannot exceed 4081"}, 4081),
    ("groq", 413, error("Request too large on tokens per minute (TPM): Limit 10000, Requested 15088, please"), 10000),
    ("openrouter", 402, error("Prompt tokens limit exceeded: 69120 > 36608. To increase, visit credits"), 36608),
    ("cerebras", 400, error("Please reduce the length. Current length is 9153 while limit is 8192"), 8192),
    ("github", 413, error("Request body too large for gpt-4o model. Max size: 8000 tokens."), 8000),
    ("copilot", 400, error("prompt token count of 160000 exceeds the limit of 128000"), 128000),
    ("openai", 429, error("Request too large for gpt-4o on tokens per min: Limit 30000, Requested 35000."), 30000),
    ("nginx", 413, "<html><head><title>413 Request Entity Too Large</title></head><body>nginx</body></html>", None),
]  # fmt: skip


async def test_a_prompt_that_is_too_long_is_recognised_and_the_window_learnt(
    there: AgentHarness, api: Loopback
) -> None:
    results = []
    for number, (server, status, body, window) in enumerate(TOO_LONG):
        api.answers = [Answer(body, status)]
        profile = ModelProfile(server)
        text = await ask(there, str(number))
        profile.learn_window(text)
        results.append((server, text.split()[0], profile.window == window))

    assert results == [(server, PromptTooLong.__name__, True) for server, *_ in TOO_LONG]
    assert len(api.asked) == len(TOO_LONG)


PENALTIES = "frequency_penalty presence_penalty repeat_penalty repetition_penalty"
UNSUPPORTED: list[tuple[int, Any, str]] = [
    (422, {"message": {"detail": [{"type": "extra_forbidden", "loc": ["body", "seed"], "msg": "Extra"}]}}, "seed"),
    (422, {"error": "body -> stop\n  Extra inputs are not permitted (type=extra_forbidden)"}, "stop"),
    (400, {"error": "[{'type': 'extra_forbidden', 'loc': ('body', 'repeat_penalty')}]"}, "repeat_penalty"),
    (400, {"message": "Validation: Unsupported parameter(s): top_k, seed", "code": 400}, "seed top_k"),
    (400, {"code": "x", "error": "Argument not supported on this model: presencePenalty"}, "presence_penalty"),
    (400, {"code": "x", "error": "Model grok-4-latest does not support parameter stop."}, "stop"),
    (400, error("Frequency penalty must satisfy p > 0."), "frequency_penalty"),
    (400, error("InvalidParameter: Temperature should be in [0.0, 2.0)"), "temperature"),
    (400, error("Penalty is not enabled for this model"), PENALTIES),
    (422, {"detail": [{"loc": ["body", "tools"], "msg": "Extra inputs are not permitted", "input": []}]}, "tools"),
    (400, error("UnsupportedParamsError: ollama does not support parameters: ['tools'], for model=llama2."), "tools"),
    (422, error("meta-llama/Llama-2 is not supported for function calling", param="tools"), "tools"),
]  # fmt: skip


async def test_what_a_server_refuses_is_left_out_however_it_says_so(there: AgentHarness, api: Loopback) -> None:
    left_out = []
    for number, (status, body, _) in enumerate(UNSUPPORTED):
        api.asked.clear()
        api.answers = [Answer(body, status), Answer(completion())]
        assert await ask(there, str(number), tools=(ROLL,)) == "Hello."
        first, second = api.bodies
        left_out.append(" ".join(sorted(first.keys() - second.keys())))

    assert left_out == [names for *_, names in UNSUPPORTED]


async def test_a_limit_whose_name_is_refused_is_sent_under_the_other_name(there: AgentHarness, api: Loopback) -> None:
    message = "Unsupported parameter: 'max_tokens' is not supported. Use 'max_completion_tokens' instead."
    too_large = error("max_completion_tokens 参数非法。限制数值范围[1,4096]", code="1210")
    api.answers = [Answer(error(message), 400), Answer(too_large, 400), Answer(completion())]
    for _ in range(2):
        assert await ask(there, "m") == "Hello."

    limits = [(sent.get("max_tokens"), sent.get("max_completion_tokens")) for sent in api.bodies]
    assert limits == [(9000, None), (None, 9000), (None, 4096), (None, 4096)]


OTHERS: list[tuple[int, Any, type[ModelError] | None, str]] = [
    (429, error("Insufficient balance or no resource package.", code="1113"), ModelRefused, "no credit"),
    (429, error("余额不足或无可用资源包,请充值。", code="1113"), ModelRefused, "no credit"),
    (500, error("insufficient balance (1008)", type="api_error"), ModelRefused, "no credit"),
    (429, error("Provider error", metadata={"raw": "due to insufficient balance"}), ModelRefused, "no credit"),
    (200, {"base_resp": {"status_code": 1008, "status_msg": "insufficient balance"}}, ModelRefused, "(402)"),
    (200, {"base_resp": {"status_code": 1002, "status_msg": "rate limit exceeded"}}, ModelBusy, "(429): rate limit"),
    (429, [error("You exceeded your current quota. Please retry in 24.5s.", code=429)], ModelBusy, "(429): You"),
    (503, "<html><title>Worker exceeded limits</title><p>x", ModelBusy, "(503): Worker exceeded limits"),
    (404, error("No endpoints found matching your data policy"), ModelRefused, "data policy"),
    (404, {"errors": [{"code": 7003, "message": "Could not route to /client"}]}, ModelRefused, "Could not route"),
    (410, {"status": 410, "detail": "The model has reached its end of life"}, ModelRefused, "(410): The model"),
    (400, error("Failed to call a function.", code="tool_use_failed"), InvalidAnswer, "could not read what the model"),
    (200, error("Failed to generate JSON.", code="json_validate_failed"), InvalidAnswer, "could not read what the"),
    (429, error("The input tokens of this minute exceed the rate limit"), ModelBusy, "(429): The input"),
    (400, error("Bad. content_policy_fallbacks=None. fallbacks=None"), ModelRefused, "(400): Bad"),
    (400, error("AzureException - The response was filtered due to content management policy"), None, REFUSAL),
    (400, error("Input data may contain inappropriate content.", code="data_inspection_failed"), None, REFUSAL),
    (400, error("系统检测到输入或生成内容可能包含不安全或敏感内容", code="1301"), None, REFUSAL),
    (400, error("The request was rejected because it was considered high risk", type="content_filter"), None, REFUSAL),
    (400, error("Content Exists Risk", code="invalid_request_error"), None, REFUSAL),
    (403, error("Input was flagged by moderation", code=403, metadata={"reasons": ["violence"]}), None, REFUSAL),
    (403, {"code": "x", "error": "Content violates usage guidelines. Failed check: SAFETY_CHECK"}, None, REFUSAL),
    (200, {"choices": None, "base_resp": {"status_code": 1026, "status_msg": "input new_sensitive"}}, None, REFUSAL),
]  # fmt: skip


async def test_the_cause_of_an_error_decides_what_becomes_of_it_and_is_named(
    there: AgentHarness, api: Loopback
) -> None:
    for number, (status, body, kind, words) in enumerate(OTHERS):
        for sink in (None, Sink()):
            api.asked.clear()
            api.answers = [Answer(body, status)]
            text = await ask(there, str(number), tools=(ROLL,), sink=sink)
            assert text.startswith(f"{kind.__name__} openai: " if kind else REFUSAL), body
            assert words in text
            assert len(api.asked) == 1
