"""What became of a message, told to a person."""

from collections.abc import Iterator

from bot.domain.ledger import ModelCall, Receipt


def explain(receipt: Receipt) -> list[str]:
    """Tell a receipt: the outcome and why, what decided, what it cost, how long it took."""
    return list(_lines(receipt))


def _lines(receipt: Receipt) -> Iterator[str]:
    yield f"{receipt.outcome}: {receipt.reason}" if receipt.reason else str(receipt.outcome)
    if receipt.rule:
        yield f"decided by: {receipt.rule}"
    if receipt.superseded_by is not None:
        yield f"taken over by: message {receipt.superseded_by}"
    if not receipt.model_calls:
        yield "no model was asked"
    for call in receipt.model_calls:
        yield _call(call)
    if receipt.closed_at is not None:
        yield f"took {(receipt.closed_at - receipt.received_at).total_seconds() * 1000:.0f} ms"
    yield from receipt.notes


def _call(call: ModelCall) -> str:
    about = "about " if call.is_estimate else ""
    cached = f" ({call.tokens_cached} of them cached)" if call.tokens_cached else ""
    failed = f", failed: {call.error}" if call.error else ""
    return (
        f"asked {call.model} for {call.purpose}: {about}{call.tokens_in} tokens in{cached}, "
        f"{call.tokens_out} out, {call.seconds * 1000:.0f} ms{failed}"
    )
