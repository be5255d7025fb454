"""The table of a comparison, for a terminal."""

from __future__ import annotations

from bench.compare.ratios import Ratio, Verdict, interval_coverage


def table(verdicts: list[Verdict], before: str, after: str, floor: float, rounds: int) -> str:
    sure = min(interval_coverage(len(each.ratios[0].every)) for each in verdicts)
    lines = [
        f"{after} over {before}: {rounds} rounds; more than 1 is better; * decides; floor {floor:g}",
        f"interval: order statistics; they cover the true median with {sure:.0%} or more",
        "",
        *_aligned([_line(each) for each in verdicts]),
        "",
        _summary(verdicts, floor),
    ]
    return "\n".join(lines)


def _line(verdict: Verdict) -> tuple[str, ...]:
    by = {ratio.measure: ratio for ratio in verdict.ratios}
    word = "BELOW" if verdict.below else "ok, but look" if verdict.doubtful else "ok"
    if "bytes" in by:
        return (verdict.row.key, *_cells(verdict, by["bytes"]), "", "", "", "", word)
    return (verdict.row.key, *_cells(verdict, by["rate"]), *_cells(verdict, by["cpu"]), word)


def _cells(verdict: Verdict, ratio: Ratio) -> tuple[str, ...]:
    mark = "*" if ratio.measure == verdict.row.judge else " "
    return (
        _shown(ratio, ratio.before),
        _shown(ratio, ratio.after),
        f"{ratio.median:.3f}{mark}",
        f"{ratio.low:.3f}-{ratio.high:.3f}",
    )


def _shown(ratio: Ratio, cost: float) -> str:
    """Messages a second, processor microseconds a message, or bytes a message."""
    if ratio.measure == "rate":
        return f"{1 / cost:,.0f}/s" if cost < 0.1 else f"{1 / cost:.2f}/s"
    if ratio.measure == "bytes":
        return f"{cost:,.0f} B"
    return f"{cost * 1e6:,.2f}"


def _aligned(lines: list[tuple[str, ...]]) -> list[str]:
    heads = [
        ("", "rate", "", "", "", "cpu us/message", "", "", "", ""),
        ("row", *("before", "after", "ratio", "interval") * 2, "verdict"),
    ]
    every = [*heads, *lines]
    widths = [max(len(line[column]) for line in every[1:]) for column in range(len(heads[1]))]
    return [
        "  ".join(
            cell.ljust(width) if column in (0, len(widths) - 1) else cell.rjust(width)
            for column, (cell, width) in enumerate(zip(line, widths, strict=True))
        ).rstrip()
        for line in every
    ]


def _summary(verdicts: list[Verdict], floor: float) -> str:
    low = [each.row.key for each in verdicts if each.below]
    return f"below {floor:g}: {', '.join(low)}" if low else f"no row is below {floor:g}"
