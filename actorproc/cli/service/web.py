"""``web``: the dashboard as a process of its own, over a directory or a URL, also with no manager."""

from __future__ import annotations

import argparse
import logging
import os
import sys
from typing import Any

from actorproc.cli.output.extras import need
from actorproc.cli.output.output import complain
from actorproc.cli.select.common import OK, directory, globals_for, home, start_command, typed, whole_number
from actorproc.cli.service.log_output import add_log_format, begin_log
from actorproc.errors import UsageError

__all__ = ["COMPANION", "add_web"]

COMPANION = "ACTORPROC_WEB_COMPANION"
"""Variable of the environment that a service sets for its page."""

_Commands = Any


def add_web(commands: _Commands) -> None:
    """Add ``web``."""
    parser = commands.add_parser(
        "web",
        help="a dashboard for browsers: why a procedure stands still, and verbs to mend it (needs the extra 'web')",
        description=(
            "Serves until SIGTERM or Ctrl-C, on this machine only unless told otherwise. The printed address has a "
            "token, which the browser swaps for a session. Works with no manager, and with one that hangs."
        ),
    )
    globals_for(parser, output=False)
    parser.add_argument("store", nargs="?", metavar="DIR|URL", help="the store, as --path has it")
    parser.add_argument("--port", type=whole_number(0, 65535), default=0, metavar="N", help="default: a free one")
    parser.add_argument("--url", metavar="ID", help="print the address of a procedure on the page that runs, and leave")
    parser.add_argument("--read-only", action="store_true", help="refuse all verbs")
    parser.add_argument("--payloads", choices=("shown", "hidden"), default="shown", help="states, inputs and outputs")
    parser.add_argument("--title", default="actorproc", metavar="TEXT", help="title of the pages")
    add_log_format(parser)
    group = parser.add_argument_group("for other machines and proxies")
    group.add_argument("--host", metavar="ADDRESS", help="another address than 127.0.0.1; needs TLS, or a proxy")
    group.add_argument("--allow-host", action="append", default=[], metavar="NAME", help="a further name of this host")
    group.add_argument("--certificate", metavar="FILE", help="certificate for TLS, in PEM")
    group.add_argument("--key", metavar="FILE", help="its key")
    group.add_argument("--uds", metavar="PATH", help="a unix socket (0600) in place of a port")
    group.add_argument("--fd", type=whole_number(0), metavar="N", help="a socket that listens already (systemd)")
    group.add_argument("--behind-proxy", action="store_true", help="a proxy stands before it; needs --public-url")
    group.add_argument("--public-url", metavar="URL", help="the address of the page there")
    group.add_argument("--user-header", metavar="NAME", help="header in which the proxy names the user; needs --uds")
    group.add_argument("--prefix", default="", metavar="PATH", help="path below which requests come in, such as /ops")
    group.add_argument("--token-file", metavar="FILE", help="a token that stays over restarts (0600; made if missing)")
    parser.set_defaults(run=_web)


def _web(options: argparse.Namespace) -> int:
    if options.store is not None:
        options.path = options.store
    path = directory(options)
    if options.url is not None:
        return _print_address(options, path)
    need("starlette", extra="web", purpose="the dashboard")
    need("uvicorn", extra="web", purpose="the dashboard")
    from actorproc.web.serving import PageSettings, serve_page

    if not home(options).exists():
        complain(f"there is no store at {home(options).words} yet: {start_command(options)}")
    if options.behind_proxy != (options.public_url is not None):
        raise UsageError("--behind-proxy and --public-url URL belong together: the URL is what browsers see")
    begin_log(options.log_format, logging.WARNING)
    settings = PageSettings(
        path=path,
        host=options.host,
        port=options.port,
        allow_hosts=tuple(options.allow_host),
        uds=options.uds,
        fd=options.fd,
        certificate=options.certificate,
        key=options.key,
        public_url=options.public_url,
        prefix=options.prefix,
        token_file=options.token_file,
        companion=COMPANION in os.environ,
        user_header=options.user_header,
        read_only=_read_only(options),
        payloads=options.payloads,
        title=options.title,
    )
    return serve_page(settings, _tell(options))


def _read_only(options: argparse.Namespace) -> str:
    """Reason why the page offers no verbs; "": it does."""
    if options.read_only:
        return "the page was started with --read-only"
    place = home(options)
    if not place.is_near and not place.may_write():
        return "the role of the URL may only read the store"
    return ""


def _tell(options: argparse.Namespace) -> Any:
    """Print where the page is: with the token only to a terminal, from where it goes into no log."""
    from actorproc.web.place import PlaceFile

    # With JSON a program reads stderr line by line.
    say = logging.getLogger("actorproc.web").warning if options.log_format == "json" else complain

    def tell(address: str, token: str | None) -> None:
        if token is None:
            print(address, flush=True)
        elif sys.stdout.isatty():
            print(f"{address}#token={token}", flush=True)
        else:
            where = options.token_file or PlaceFile(directory(options)).file
            print(address, flush=True)
            say(f"the token is in {where}; the whole address: {typed(options, 'web --url ID')}")
        if options.read_only:
            say("read-only: no verbs are offered")

    return tell


def _print_address(options: argparse.Namespace, path: str) -> int:
    from actorproc.web.place import place_of_page

    found = place_of_page(path)
    given = os.environ.get("ACTORPROC_WEB")
    if found is None and given is None:
        raise UsageError(f"no page runs on {home(options).words}: start one with `{typed(options, 'web')}`")
    from actorproc.web.place import address_of

    token = "" if found is None or found.token is None or given is not None else f"#token={found.token}"
    print(f"{address_of(path, options.url)}{token}")
    return OK
