"""The application for ASGI servers: Django, and the dashboard below /ops for staff who are logged in.

uvicorn shop.asgi:application --timeout-graceful-shutdown 3
"""

import os
from importlib import import_module

from django.core.asgi import get_asgi_application

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "shop.settings")
django = get_asgi_application()

from django.conf import settings  # noqa: E402 - as all below it, it needs the settings
from django.contrib.auth import get_user  # noqa: E402
from django.db import close_old_connections  # noqa: E402
from django.http import HttpRequest  # noqa: E402

from actorproc.web import create_app  # noqa: E402

sessions = import_module(settings.SESSION_ENGINE)


def authorize(request, verb, id):
    """The name of a member of staff; None: refused. A plain function: it runs in a thread, where queries may block."""
    close_old_connections()
    try:
        asked = HttpRequest()
        asked.session = sessions.SessionStore(request.cookies.get(settings.SESSION_COOKIE_NAME))
        user = get_user(asked)
        return user.get_username() if user.is_active and user.is_staff else None
    finally:
        close_old_connections()


pages = create_app(settings.PROCEDURES, authorize=authorize, hosts=settings.ALLOWED_HOSTS, prefix="/ops")


async def application(scope, receive, send):
    below = scope["type"] == "http" and f"{scope['path']}/".startswith("/ops/")
    await (pages if below else django)(scope, receive, send)
