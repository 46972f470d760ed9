"""Exit codes of a worker process, chosen away from the conventions of shells, sysexits and signals.

Anything else a worker exits with was chosen by the code of a step.
"""

from __future__ import annotations

__all__ = ["EXIT_BOOT", "EXIT_CHANNEL", "EXIT_INTERNAL", "EXIT_ORPHAN", "EXIT_PROTOCOL", "EXIT_TERMINATED", "in_words"]

EXIT_BOOT = 91
"""The preparation failed: an import, the environment factory."""
EXIT_PROTOCOL = 92
"""The bytes from the host were no frames, or came in an impossible order."""
EXIT_INTERNAL = 93
"""An exception in the worker's own machinery; its traceback is the end of stderr."""
EXIT_ORPHAN = 94
"""The host is gone; no process is left to read this."""
EXIT_TERMINATED = 95
"""SIGTERM interrupted a step."""
EXIT_CHANNEL = 96
"""The channel to the host was closed within the worker."""

_WORDS = {
    EXIT_BOOT: "could not prepare itself",
    EXIT_PROTOCOL: "could not understand the bytes of its host",
    EXIT_INTERNAL: "failed in its own machinery, not in user code",
    EXIT_ORPHAN: "believed that its host was gone",
    EXIT_CHANNEL: "could not answer: the code of a step had closed its channel to the host",
    EXIT_TERMINATED: "was ended by SIGTERM in the middle of a step",
}


def in_words(code: int) -> str:
    """An exit code as the second half of a sentence: "exited with code 3"."""
    meaning = _WORDS.get(code)
    return f"exited with code {code}" if meaning is None else f"{meaning} (exit code {code})"
