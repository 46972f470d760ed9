"""Settings of the example; a real application has more."""

import os
from pathlib import Path

HERE = Path(os.environ.get("SHOP_DIRECTORY", ".")).absolute()

SECRET_KEY = "for this example only"
ALLOWED_HOSTS = ["localhost", "127.0.0.1"]
ROOT_URLCONF = "shop.views"
INSTALLED_APPS = ["django.contrib.auth", "django.contrib.contenttypes", "django.contrib.sessions", "shop"]
MIDDLEWARE = [
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
]
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
DATABASES = {"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": HERE / "shop.sqlite3"}}
PROCEDURES = HERE / "state"
