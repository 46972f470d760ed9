"""The manager, run by `actorproc run shop.service`."""

import os

import django

from actorproc import ProcedureManager

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "shop.settings")
django.setup()

from django.conf import settings  # noqa: E402 - as all below it, it needs the settings

from shop.models import Fulfil  # noqa: E402

# Each worker runs `django.setup` before it imports a model.
manager = ProcedureManager(settings.PROCEDURES, procedures=[Fulfil], workers=2, environment=django.setup)
