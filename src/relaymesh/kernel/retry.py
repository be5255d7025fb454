"""When a failed delivery is tried again."""

from __future__ import annotations

from relaymesh.kernel.settings import MailboxSettings


def backoff_ms(settings: MailboxSettings, retry: int, chance: float) -> int:
    """Delay before retry `retry` (1, 2, ...): min(base * 2^(n-1), cap) * (1 + chance * jitter).

    `chance` is uniform in [0, 1) and is passed in, so that the decision can be replayed.
    """
    exponent = min(retry - 1, 32)
    plain = min(settings.backoff_ms_base << exponent, settings.backoff_ms_cap)
    return int(plain * (1 + chance * settings.backoff_jitter))
