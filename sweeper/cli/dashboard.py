"""`sweeper dashboard RESULTS`: look at runs in the browser, also while they run."""

import socket
from pathlib import Path

import click

from sweeper.core.plain import plain
from sweeper.errors import ConfigError, PreflightError

DEFAULT_PORT = 8642


@click.command("dashboard")
@click.argument("results", type=click.Path(path_type=Path), default=Path("results"))
@click.option("--host", default="127.0.0.1", show_default=True, help="Address to listen on.")
@click.option(
    "--port", type=click.IntRange(0, 65535), default=DEFAULT_PORT, show_default=True, help="Port; 0: any free one."
)
@click.option(
    "--token",
    envvar="SWEEPER_DASHBOARD_TOKEN",
    help="What a browser must show once; needed when other machines can reach --host. Better given by "
    "SWEEPER_DASHBOARD_TOKEN: arguments are visible to every user of this machine.",
)
@click.option(
    "--history",
    "histories",
    type=click.Path(path_type=Path),
    multiple=True,
    help="Also show this history of a nightly job; those inside RESULTS are found.",
)
def command(results: Path, host: str, port: int, token: str | None, histories: tuple[Path, ...]) -> int:
    """Show the runs in folder RESULTS [results] in the browser, read-only, also while they run."""
    from sweeper.present.dashboard.app import create_app
    from sweeper.present.dashboard.serve import DashboardServer

    _require_safe(host, token)
    for folder in (results, *histories):
        _look(folder)
    listener = _listen(host, port)
    address = _address(host, listener.getsockname()[1])
    click.echo(plain(f"dashboard of {results}: {address}"), err=True)
    if token:
        click.echo(f"first visit: {address}?token=…, with the token in place of the dots", err=True)
    DashboardServer(create_app(results, histories=histories, token=token)).run(sockets=[listener])
    return 0


def _look(folder: Path) -> None:
    """A folder that is not there may come with the first run; a file never becomes one."""
    if folder.exists() and not folder.is_dir():
        raise ConfigError(f"{folder}: a file, not a folder of results; name the folder that holds it")
    if not folder.exists():
        click.echo(plain(f"{folder}: no such folder yet; it is shown when something is written there"), err=True)


def _require_safe(host: str, token: str | None) -> None:
    from sweeper.present.dashboard.security import SHORTEST_TOKEN, is_loopback

    if token is not None and len(token) < SHORTEST_TOKEN:
        raise ConfigError(f"--token: at least {SHORTEST_TOKEN} characters; `openssl rand -hex 16` makes one")
    if token is None and not is_loopback(host):
        raise ConfigError(
            f"--host {host}: other machines could read every result; add --token (`openssl rand -hex 16` makes one), "
            "or stay with 127.0.0.1 and forward the port by ssh"
        )


def _listen(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((host.strip("[]"), port))
    except OSError as error:
        listener.close()
        raise PreflightError(
            f"cannot listen on {host} port {port}: {error.strerror or error}; choose another with --port (0: any)"
        ) from error
    return listener


def _address(host: str, port: int) -> str:
    shown = f"[{host}]" if ":" in host and not host.startswith("[") else host
    return f"http://{shown}:{port}/"
