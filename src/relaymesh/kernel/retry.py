"""When a failed delivery is tried again."""

from __future__ import annotations

from relaymesh.kernel.settings import MailboxSettings


def backoff_ms(settings: MailboxSettings, retry: int, chance: float, base: int = 0, cap: int = 0) -> int:
    """Delay before retry `retry` (1, 2, ...): min(base * 2^(n-1), cap) * (1 + chance * jitter).

    `base`, `cap`: those of the work, which hold where the mailbox has the default; 0: it has none.
    `chance` is uniform in [0, 1) and is passed in, so that the decision can be replayed.
    """
    exponent = min(retry - 1, 32)
    base = _chosen(settings.backoff_ms_base, _PLAIN.backoff_ms_base, base)
    cap = _chosen(settings.backoff_ms_cap, _PLAIN.backoff_ms_cap, cap)
    return int(min(base << exponent, cap) * (1 + chance * settings.backoff_jitter))


def _chosen(of_mailbox: int, default: int, of_work: int) -> int:
    return of_work if of_work and of_mailbox == default else of_mailbox


_PLAIN = MailboxSettings()
