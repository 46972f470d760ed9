"""systemd's notification protocol (sd_notify): datagrams of ``NAME=value`` lines to a socket the environment names."""

from __future__ import annotations

import logging
import os
import socket
from collections.abc import MutableMapping

__all__ = ["Notifier"]

logger = logging.getLogger("actorproc")


class Notifier:
    """Tells the service manager how this process does; without one, says nothing.

    ``watchdog_seconds`` is how often it wants to hear `alive`, at the latest; None: never.
    """

    def __init__(self, address: str | None, watchdog_seconds: float | None = None) -> None:
        self._address = address
        self.watchdog_seconds = watchdog_seconds if address is not None else None

    @classmethod
    def from_environment(cls, environment: MutableMapping[str, str]) -> Notifier:
        """The notifier that NOTIFY_SOCKET and WATCHDOG_USEC ask for.

        They are taken out: they are meant for this process, and worker processes would inherit them.
        """
        address = environment.pop("NOTIFY_SOCKET", None)
        microseconds = environment.pop("WATCHDOG_USEC", "")
        pid = environment.pop("WATCHDOG_PID", "")
        if address is not None and address[:1] not in {"/", "@"}:
            logger.warning(
                "NOTIFY_SOCKET=%s is neither a path nor an abstract name; no service manager is notified", address
            )
            address = None
        is_watched = microseconds.isdecimal() and int(microseconds) > 0 and pid in {"", str(os.getpid())}
        return cls(address, int(microseconds) / 1e6 if is_watched else None)

    def ready(self, status: str) -> None:
        """It is up."""
        self._send("READY=1", f"STATUS={_one_line(status)}")

    def status(self, status: str) -> None:
        """State of the service, for people."""
        self._send(f"STATUS={_one_line(status)}")

    def alive(self, status: str) -> None:
        """Proof of life for the watchdog, and how it does."""
        self._send("WATCHDOG=1", f"STATUS={_one_line(status)}")

    def stopping(self, status: str) -> None:
        """It is going down."""
        self._send("STOPPING=1", f"STATUS={_one_line(status)}")

    def _send(self, *lines: str) -> None:
        address = self._address
        if address is None:
            return
        # A leading @ stands for the zero byte of Linux's abstract names.
        place = "\0" + address[1:] if address.startswith("@") else address
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | getattr(socket, "SOCK_CLOEXEC", 0)) as sender:
                sender.settimeout(1.0)  # a full queue of the reader must not hold up a stop
                sender.sendto("\n".join(lines).encode(), place)
        except OSError as error:
            logger.warning("cannot notify the service manager at %s: %s", address, error)


def _one_line(text: str) -> str:
    return " ".join(text.split())
