"""What became of a message, told to a person."""

from collections.abc import Iterator, Sequence

from bot.domain.ledger import ModelCall, Receipt

SMALLEST = 0.000001


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
    if len(receipt.model_calls) > 1:
        yield f"all of it: {_total(receipt.model_calls)}"
    if receipt.closed_at is not None:
        yield f"took {(receipt.closed_at - receipt.received_at).total_seconds() * 1000:.0f} ms"
    yield from receipt.notes


def _call(call: ModelCall) -> str:
    about = "about " if call.is_estimate else ""
    cached = f" ({call.tokens_cached} of them cached)" if call.tokens_cached else ""
    failed = f", failed: {call.error}" if call.error else ""
    return (
        f"asked {call.model} for {call.purpose}: {about}{call.tokens_in} tokens in{cached}, "
        f"{call.tokens_out} out, {priced(call.cost)}, {call.seconds * 1000:.0f} ms{failed}"
    )


def _total(calls: Sequence[ModelCall]) -> str:
    known = [call.cost for call in calls if call.cost is not None]
    told = dollars(sum(known))
    return told if len(known) == len(calls) else f"{told}, and what {len(calls) - len(known)} of them cost"


def priced(cost: float | None) -> str:
    """Write what something has cost, if that is known."""
    return "price unknown" if cost is None else dollars(cost)


def dollars(amount: float) -> str:
    """Write an amount: to the cent where it is large, to the millionth where it is small."""
    if amount >= 10:
        return f"${amount:,.2f}"
    if 0 < amount < SMALLEST:
        return "under $0.000001"
    return "$" + (f"{amount:.6f}".rstrip("0").rstrip("."))
