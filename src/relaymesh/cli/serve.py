"""serve and dev: a node that other processes and other languages reach over HTTP and WebSocket."""

from __future__ import annotations

import asyncio
import logging
import os
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from shlex import quote
from types import MappingProxyType
from typing import TYPE_CHECKING, Annotated, NamedTuple

import typer

from relaymesh.cli import options
from relaymesh.cli.commands import directory_command
from relaymesh.cli.options import Call, begin
from relaymesh.cli.output import Output
from relaymesh.errors import DirectoryInUse
from relaymesh.node.settings import MeshSettings
from relaymesh.server.address import read_address
from relaymesh.server.reliability import ReliabilityConfig
from relaymesh.server.security.limits import SecuritySettings
from relaymesh.server.settings import ServerSettings
from relaymesh.wire.parameters import ROWS, Value

if TYPE_CHECKING:
    from relaymesh.server.run import Running

EXIT_CUT_SHORT = 1
DEFAULTS = ServerSettings()

Host = Annotated[
    str, typer.Option("--host", metavar="ADDRESS", help="Listen here; not loopback needs TLS and a token.")
]
Port = Annotated[int, typer.Option("--port", metavar="N", min=0, max=65535, help="0 for any free one.")]
Graceful = Annotated[
    float,
    typer.Option("--graceful-timeout", metavar="SECONDS", min=0, help="How long a stop may take at most."),
]
TlsCert = Annotated[str | None, typer.Option("--tls-cert", metavar="FILE", help="Certificate chain, PEM.")]
TlsKey = Annotated[str | None, typer.Option("--tls-key", metavar="FILE", help="Its private key, PEM.")]
TlsClientCa = Annotated[
    str | None,
    typer.Option("--tls-client-ca", metavar="FILE", help="Require client certificates of this CA."),
]
AllowHosts = Annotated[
    list[str] | None,
    typer.Option("--allow-host", metavar="NAME", help="A host name that clients use; may be repeated."),
]
Proxies = Annotated[
    list[str] | None,
    typer.Option("--proxy", metavar="ADDRESS", help="Accept X-Forwarded-* from this proxy; may be repeated."),
]
WriteRate = Annotated[
    float,
    typer.Option("--write-rate", metavar="N", min=0, help="Writes a second for each token; 0: no limit."),
]
KeptBytesMax = Annotated[
    int,
    typer.Option(
        "--kept-bytes-max", metavar="BYTES", min=0, help="Mail kept in memory for each sender; 0: no limit."
    ),
]
ConnectionsMax = Annotated[
    int, typer.Option("--connections-max", metavar="N", min=1, help="Connections open at once.")
]
BodyBytesMax = Annotated[
    int, typer.Option("--body-bytes-max", metavar="BYTES", min=1, help="The largest request.")
]
GetCompat = Annotated[
    bool, typer.Option("--get-compat", help="Also take writes as GET, which is deprecated and audited.")
]
AckTimeout = Annotated[
    int,
    typer.Option("--ack-timeout", metavar="MS", help="Lease of a delivery; 30000: depends on the priority."),
]
MaxRetries = Annotated[
    int, typer.Option("--max-retries", metavar="N", help="Retries before a message is a dead letter.")
]
RetryDelayBase = Annotated[
    int,
    typer.Option("--retry-delay-base", metavar="MS", help="Delay before the first retry; then doubled."),
]
DefaultTtl = Annotated[
    int,
    typer.Option("--default-ttl", metavar="SECONDS", help="For messages without a ttl; 0: no limit."),
]
HeartbeatInterval = Annotated[
    int, typer.Option("--heartbeat-interval", metavar="MS", help="How often agents must send a heartbeat.")
]
HeartbeatTimeout = Annotated[
    int,
    typer.Option(
        "--heartbeat-timeout", metavar="MS", help="An agent without a heartbeat for this long is offline."
    ),
]

UntilStdinEnds = Annotated[
    bool,
    typer.Option(
        "--until-stdin-ends", help="Stop when standard input ends, as it does when the parent process dies."
    ),
]


Config = Annotated[
    Path | None,
    typer.Option(
        "--config", metavar="FILE", help="A relaymesh.toml; its [settings] override relaymesh-settings.json."
    ),
]


KeptSettings = Annotated[
    Path | None,
    typer.Option(
        "--kept-settings",
        metavar="FILE",
        help="Keep sound settings there, and start on them while a file of settings is wrong.",
    ),
]


class Chosen(NamedTuple):
    """Settings given on the command line, also where they are the default; and files."""

    flags: Mapping[str, Value] = MappingProxyType({})
    config: Path | None = None
    kept: Path | None = None


def _chosen_flags(context: typer.Context) -> dict[str, Value]:
    """Options of `serve` that a settings file may hold too, and that the command line has."""
    return {
        name: context.params[row.field]
        for name, row in ROWS.items()
        if row.field in context.params
        and getattr(context.get_parameter_source(row.field), "name", "DEFAULT") != "DEFAULT"
    }


def serve(
    context: typer.Context,
    directory: options.Dir = None,
    host: Host = DEFAULTS.host,
    port: Port = DEFAULTS.port,
    graceful_timeout: Graceful = DEFAULTS.graceful_timeout,
    tls_cert: TlsCert = None,
    tls_key: TlsKey = None,
    tls_client_ca: TlsClientCa = None,
    allow_host: AllowHosts = None,
    proxy: Proxies = None,
    write_rate: WriteRate = DEFAULTS.security.write_rate,
    kept_bytes_max: KeptBytesMax = DEFAULTS.security.kept_bytes_max,
    connections_max: ConnectionsMax = DEFAULTS.security.connections_max,
    body_bytes_max: BodyBytesMax = DEFAULTS.body_bytes_max,
    get_compat: GetCompat = False,
    ack_timeout: AckTimeout = DEFAULTS.reliability.ack_timeout,
    max_retries: MaxRetries = DEFAULTS.reliability.max_retries,
    retry_delay_base: RetryDelayBase = DEFAULTS.reliability.retry_delay_base,
    default_ttl: DefaultTtl = DEFAULTS.reliability.default_ttl,
    heartbeat_interval: HeartbeatInterval = DEFAULTS.reliability.heartbeat_interval,
    heartbeat_timeout: HeartbeatTimeout = DEFAULTS.reliability.heartbeat_timeout,
    until_stdin_ends: UntilStdinEnds = False,
    config: Config = None,
    kept_settings: KeptSettings = None,
    json: options.Json = False,
) -> None:
    """Serve a data directory over HTTP and WebSocket until a signal ends it. State survives a restart."""
    call = begin(context, directory, json)
    settings = ServerSettings(
        host=host,
        port=port,
        graceful_timeout=graceful_timeout,
        body_bytes_max=body_bytes_max,
        tls_cert=tls_cert,
        tls_key=tls_key,
        tls_client_ca=tls_client_ca,
        security=SecuritySettings(
            allow_hosts=tuple(allow_host or ()),
            proxies=tuple(proxy or ()),
            write_rate=write_rate,
            kept_bytes_max=kept_bytes_max,
            connections_max=connections_max,
            get_compat=get_compat,
        ),
        reliability=ReliabilityConfig(
            ack_timeout=ack_timeout,
            max_retries=max_retries,
            retry_delay_base=retry_delay_base,
            default_ttl=default_ttl,
            heartbeat_interval=heartbeat_interval,
            heartbeat_timeout=heartbeat_timeout,
        ),
    )
    chosen = Chosen(_chosen_flags(context), config, kept_settings)
    _run(
        call,
        settings,
        lambda running: _say_briefly(call.output, running),
        chosen,
        with_stdin=until_stdin_ends,
    )


@directory_command
def dev(
    call: Call,
    port: Port = DEFAULTS.port,
) -> None:
    """Serve this machine only, and print all addresses and paths. State survives a restart."""
    _run(call, ServerSettings(port=port), lambda running: _say_everything(call.output, running))


def _run(
    call: Call,
    settings: ServerSettings,
    say: Callable[[Running], None],
    chosen: Chosen | None = None,
    *,
    with_stdin: bool = False,
) -> None:
    from relaymesh.server.garbage import collected_seldom, leave_out_what_exists
    from relaymesh.server.run import event_loop  # other commands need not load a server

    path, chosen = call.path, chosen or Chosen()

    def announce(running: Running) -> None:
        say(running)
        sys.stdout.flush()  # the parent process may wait for this line at the other end of a pipe
        leave_out_what_exists()

    with (
        _server_log(call.output),
        collected_seldom(),
        asyncio.Runner(loop_factory=event_loop()) as runner,
    ):
        try:
            runner.run(_serve(path, settings, announce, chosen, with_stdin=with_stdin))
        except DirectoryInUse as error:
            raise _with_address(path, error) from None


async def _serve(
    path: Path,
    settings: ServerSettings,
    announce: Callable[[Running], None],
    chosen: Chosen,
    *,
    with_stdin: bool,
) -> None:
    from relaymesh.server.run import NodeServer  # see `_run`

    server = NodeServer(
        path,
        MeshSettings(),
        settings,
        announce=announce,
        flags=chosen.flags,
        toml=chosen.config,
        kept=chosen.kept,
    )
    if with_stdin:
        _call_at_end_of_stdin(asyncio.get_running_loop(), lambda: server.stop("the end of stdin"))
    if not await server.run():
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(EXIT_CUT_SHORT)  # what still runs must not hold up a user who asked twice


def _call_at_end_of_stdin(loop: asyncio.AbstractEventLoop, ended: Callable[[], None]) -> None:
    """In a thread: not every event loop can watch every kind of stdin."""

    def watch() -> None:
        while os.read(sys.stdin.fileno(), 4096):
            continue
        try:
            loop.call_soon_threadsafe(ended)
        except RuntimeError:
            return  # the loop has ended first

    threading.Thread(target=watch, name="relaymesh-stdin", daemon=True).start()


def _with_address(path: Path, error: DirectoryInUse) -> DirectoryInUse:
    running = read_address(path)
    if running is None:
        return error
    return DirectoryInUse(
        f"a node serves {path} already: {running.url} (pid {running.pid})",
        hint="use it, stop it, or serve another directory with --dir",
    )


def _say_briefly(output: Output, running: Running) -> None:
    if output.json:
        output.object(_fields(running))
    else:
        output.line(f"serving {running.directory} at {running.url}")


def _say_everything(output: Output, running: Running) -> None:
    if output.json:
        output.object(_fields(running))
        return
    token = f'"Authorization: Bearer $(cat {running.token_file})"'
    for line in (
        "RelayMesh runs. Ctrl-C stops it; everything is kept.",
        "",
        f"  API      {running.url}/v1",
        f"  docs     {running.url}/docs",
        f"  data     {running.directory}",
        f"  token    {running.token_file}   (replaced at every start; only for this user)",
        f"           relaymesh --dir {quote(str(running.directory))} token create … makes lasting ones",
        "",
        f"  try      curl -H {token} {running.url}/v1/node",
    ):
        output.line(line)


def _fields(running: Running) -> dict[str, str]:
    return {
        "url": running.url,
        "docs": f"{running.url}/docs",
        "directory": str(running.directory),
        "token_file": str(running.token_file),
    }


@contextmanager
def _server_log(output: Output) -> Iterator[None]:
    """What the server has to say, beside the warnings that every command shows."""
    logger = logging.getLogger("relaymesh.server")
    handler = _InfoHandler(output)
    level = logger.level
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    try:
        yield
    finally:
        logger.setLevel(level)
        logger.removeHandler(handler)


class _InfoHandler(logging.Handler):
    def __init__(self, output: Output) -> None:
        super().__init__(logging.INFO)
        self._output = output

    def emit(self, record: logging.LogRecord) -> None:
        if record.levelno < logging.WARNING:
            try:
                self._output.note(record.getMessage())
            except OSError:  # the reader of stderr is gone, and the server must still stop in order
                return
