"""Web dashboard over a store: pages, a JSON API and live events. Needs the extra ``web``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from actorproc.web.app import create_app
    from actorproc.web.scraping import create_metrics_app

__all__ = ["create_app", "create_metrics_app"]


def __getattr__(name: str) -> Any:
    # The place of a running page is looked up by commands that need no server.
    if name == "create_app":
        from actorproc.web.app import create_app  # noqa: PLC0415

        return create_app
    if name == "create_metrics_app":
        from actorproc.web.scraping import create_metrics_app  # noqa: PLC0415

        return create_metrics_app
    msg = f"module {__name__!r} has no attribute {name!r}"
    raise AttributeError(msg)
