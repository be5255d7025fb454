"""torture: kill, pause and restart workers on this machine's disk, and let an independent checker judge."""

from __future__ import annotations

import random
import secrets
import shutil
import signal
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, get_args

import typer

from relaymesh.cli import options
from relaymesh.cli.failure import Exit, UsageFailed
from relaymesh.cli.moments import bytes_text
from relaymesh.cli.options import Call, begin
from relaymesh.cli.output import BOLD, GREEN, RED, Output, Styled
from relaymesh.errors import Conflict
from relaymesh.node.settings import Durability
from relaymesh.sdk.stop_signals import heeded
from relaymesh.testing.torture.checker import RULES
from relaymesh.testing.torture.remote import RemoteTorture
from relaymesh.testing.torture.torture import Settings, Torture, Verdict, nobody_asked

SHOWN_MAX = 20

Minutes = Annotated[
    float,
    typer.Option("--minutes", min=0.05, metavar="M", help="How long to run, without the drain at the end."),
]
Where = Annotated[
    Path | None,
    typer.Option(
        "--data",
        metavar="PATH",
        help="A new directory, on the disk to test; else a temporary one in the current directory.",
    ),
]
Dir = Annotated[Path | None, typer.Option("--dir", metavar="PATH", help="The same as --data.")]
OnExisting = Annotated[
    bool,
    typer.Option("--on-existing-data", help="Allow a directory that is not empty: torture THAT mesh."),
]
Durable = Annotated[
    str, typer.Option("--durability", metavar="WORD", help="What a receipt means: synced or batched.")
]
Workers = Annotated[int, typer.Option("--workers", min=1, max=64, metavar="N", help="Senders in a worker.")]
Seed = Annotated[
    int | None, typer.Option("--seed", metavar="S", help="Repeat the plan of an earlier run; else a new one.")
]
Remote = Annotated[
    bool,
    typer.Option("--remote", help="Through a server: it is killed, and its clients must reconnect."),
]
Keep = Annotated[bool, typer.Option("--keep", help="Keep data and ledgers even if nothing failed.")]


def torture(
    context: typer.Context,
    minutes: Minutes = 1.0,
    data: Where = None,
    directory: Dir = None,
    on_existing_data: OnExisting = False,
    durability: Durable = "synced",
    workers: Workers = 4,
    seed: Seed = None,
    keep: Keep = False,
    remote: Remote = False,
    json: options.Json = False,
) -> None:
    """Test this machine: workers are killed, paused and restarted while they send, and nothing may be lost.

    kill -9 at work, in recovery and in checkpoints; SIGSTOP beyond the lease; stops and restarts. A checker
    that shares no code with RelayMesh judges the ledgers of the workers. Exit code 0: every promise was kept;
    1: one was broken, and data and ledgers are kept. Ctrl-C prints the verdict so far.
    """
    if data is not None and directory is not None:
        raise UsageFailed("--data and --dir are the same: give one of them")
    call = begin(context, directory if data is None else data, json)
    if durability not in ("synced", "batched"):
        words = " or ".join(word for word in get_args(Durability) if word != "memory")
        raise UsageFailed(f"durability is {durability!r}: it must be {words}", hint="memory keeps nothing")
    if remote and durability != "synced":
        raise UsageFailed("--remote tries relaymesh serve, which is synced", hint="leave out --durability")
    ground = Ground.at(call.given, on_existing_data)
    settings = Settings(
        data=ground.data,
        ledgers=ground.ledgers,
        seconds=minutes * 60,
        seed=random.SystemRandom().randrange(10**9) if seed is None else seed,
        tag=secrets.token_hex(4),
        workers=workers,
        durability="batched" if durability == "batched" else "synced",
        keep=keep,
        remote=remote,
    )
    if not json:
        _announce(call, settings, minutes)
    with _progress(call.output, settings.seconds) as tell:
        run = (RemoteTorture if remote else Torture)(settings, tell)
        with _interrupted_by_signals(run.interrupt):
            verdict = run.run()
    kept = keep or not verdict.good
    if not kept:
        ground.clear()
    _tell(call.output, settings, verdict, ground.root if kept else None)
    raise typer.Exit(_exit_code(verdict))


def _exit_code(verdict: Verdict) -> Exit:
    if not verdict.good:
        return Exit.FAILED
    return Exit.INTERRUPTED if verdict.interrupted else Exit.OK


# -- where


@dataclass(frozen=True, slots=True)
class Ground:
    """Where it takes place, and what of it is ours to remove."""

    root: Path
    data: Path
    ledgers: Path
    ours: tuple[Path, ...]

    @classmethod
    def at(cls, given: Path | None, on_existing_data: bool) -> Ground:
        """A new directory; one that is not empty only if the option allows it."""
        if given is None:
            root = Path(tempfile.mkdtemp(prefix="relaymesh-torture-", dir=Path.cwd()))
            return cls(root, root / "mesh", root / "ledgers", (root,))
        root = given.absolute()
        if not root.exists():
            return cls(root, root / "mesh", root / "ledgers", (root,))
        if not any(root.iterdir()):
            return cls(root, root / "mesh", root / "ledgers", (root / "mesh", root / "ledgers"))
        if not on_existing_data:
            raise Conflict(
                f"{root} holds data, and torture would kill processes at work on it",
                hint="name a new directory; or, if that mesh is what you want to try, add --on-existing-data",
            )
        data = root if (root / "journal").is_dir() else root / "mesh"
        ledgers = Path(tempfile.mkdtemp(prefix="torture-ledgers-", dir=root))
        return cls(root, data, ledgers, (ledgers,))

    def clear(self) -> None:
        for folder in self.ours:
            shutil.rmtree(folder, ignore_errors=True)


# -- meanwhile


def _announce(call: Call, settings: Settings, minutes: float) -> None:
    call.output.line(
        f"Torture for {minutes:g} min, seed {settings.seed}, {settings.durability}, "
        f"{settings.workers} senders a worker"
    )
    call.output.line(f"Data directory: {settings.data}")
    sys.stdout.flush()


@contextmanager
def _progress(output: Output, seconds: float) -> Iterator[Callable[[Verdict, float], None]]:
    """A bar on stderr, if that is a terminal and --json was not given."""
    if output.json or not sys.stderr.isatty():
        yield nobody_asked
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn("torture"), BarColumn(bar_width=None), TextColumn("{task.fields[done]}"))
    console = Console(stderr=True)
    with Progress(*columns, TimeRemainingColumn(), console=console, transient=True) as bar:
        task = bar.add_task("torture", total=seconds, done="starting")

        def tell(verdict: Verdict, passed: float) -> None:
            done = f"{verdict.kills} kills {verdict.stops} pauses {verdict.restarts} restarts"
            bar.update(task, completed=min(passed, seconds), done=done)

        yield tell


@contextmanager
def _interrupted_by_signals(interrupt: Callable[[], None]) -> Iterator[None]:
    """The first Ctrl-C, or a SIGTERM, ends it with a verdict; a second Ctrl-C without one."""

    def first(*_: object) -> None:
        for number in heeded([signal.SIGINT]):
            signal.signal(number, signal.default_int_handler)
        interrupt()

    before = {number: signal.signal(number, first) for number in heeded((signal.SIGINT, signal.SIGTERM))}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


# -- the verdict


def figures(settings: Settings, verdict: Verdict, kept: Path | None) -> dict[str, Any]:
    """The last line of `--json`."""
    found = verdict.found
    return {
        "verdict": "passed" if verdict.good else "failed",
        "kills": verdict.kills,
        "stops": verdict.stops,
        "restarts": verdict.restarts,
        "messages": found.messages,
        "deliveries": found.deliveries,
        "duplicates": found.duplicates,
        **verdict.broken(),
        "failures": verdict.failures,
        "resent": found.resent,
        "refused": found.refused,
        "stale_refused": found.stale_refused,
        "dead_letters": found.dead,
        "recovery_ms": verdict.recovery_ms(1),
        "recovery_ms_p50": verdict.recovery_ms(0.5),
        "recovery_ms_p95": verdict.recovery_ms(0.95),
        "recoveries": len(verdict.recoveries_ms),
        "rounds": verdict.rounds,
        "seconds": round(verdict.seconds, 1),
        "disk_bytes": verdict.disk_bytes,
        "durability": settings.durability,
        "workers": settings.workers,
        "seed": settings.seed,
        "interrupted": verdict.interrupted,
        "broken": found.words[:SHOWN_MAX],
        "kept": None if kept is None else str(kept),
        "again": settings.again(),
    }


def _tell(output: Output, settings: Settings, verdict: Verdict, kept: Path | None) -> None:
    fields = figures(settings, verdict, kept)
    if output.json:
        output.object(fields)
        return
    output.line()
    _headline(output, verdict)
    output.line()
    output.record(
        {
            "killed": f"{verdict.kills} times with kill -9: at work, in recovery, in checkpoints",
            "paused": f"{verdict.stops} times beyond the lease; "
            f"{fields['stale_refused']} late settles refused",
            "restarted": f"{verdict.restarts} times, gracefully or at once",
            "messages": f"{fields['messages']} receipted, {fields['resent']} sent again, "
            f"{fields['refused']} refused by a full mailbox",
            "deliveries": f"{fields['deliveries']}, of them {fields['duplicates']} again (at least once)",
            "dead letters": f"{fields['dead_letters']}, all of them meant to fail",
            "recovery": f"{fields['recovery_ms_p50']:g} ms median, {fields['recovery_ms_p95']:g} ms p95, "
            f"{fields['recovery_ms']:g} ms longest of {fields['recoveries']}",
            "disk": f"{bytes_text(verdict.disk_bytes)} at the end",
            "time": f"{verdict.seconds:.0f} s, {verdict.rounds} rounds",
        }
    )
    output.line()
    for rule, count in verdict.broken().items():
        mark = Styled("✗", RED) if count else Styled("✓", GREEN)
        output.line(mark, f" {count:>6}  {rule:<10} {RULES[rule]}")
    for words in [*verdict.failures, *fields["broken"]]:
        output.line()
        output.text(words)
    if kept is not None:
        output.line()
        output.line(f"Kept: data {settings.data}, ledgers {settings.ledgers}")
    if not verdict.good:
        output.line(f"Again: {settings.again()}")


def _headline(output: Output, verdict: Verdict) -> None:
    so_far = " so far (interrupted)" if verdict.interrupted else ""
    if verdict.good:
        words, style = f"PASSED{so_far}: nothing lost, nothing invented, every lane in order", GREEN
    else:
        words, style = f"FAILED{so_far}: a promise was not kept; nothing was removed", f"{BOLD};{RED}"
    output.line(Styled(words, style))
