"""Views that submit to the manager of the service, and look there; and their URLs."""

import os

from django.conf import settings
from django.contrib.auth import authenticate, login, logout
from django.http import JsonResponse
from django.shortcuts import get_object_or_404
from django.urls import path
from django.views.decorators.csrf import csrf_exempt
from django.views.decorators.http import require_POST

from actorproc import connect
from shop.models import Fulfil, Order

# Opened by the first request in each process; the service leads, whatever becomes of the processes of the web server.
hub = connect(settings.PROCEDURES, procedures=[Fulfil], lead=False, patience=10)


@csrf_exempt
@require_POST
def accept(request, item):
    order = Order.objects.create(item=item)
    # In a transaction (ATOMIC_REQUESTS) this belongs into transaction.on_commit: else a worker may look too early.
    hub.submit(Fulfil(order.pk), id=f"order-{order.pk}")
    return JsonResponse({"order": order.pk, "process": os.getpid()}, status=202)


def look(request, order):
    found = get_object_or_404(Order, pk=order)
    return JsonResponse({"item": found.item, "state": found.state, "procedure": hub.info(f"order-{order}").state})


@csrf_exempt
@require_POST
def sign_in(request):
    user = authenticate(request, username=request.POST.get("name"), password=request.POST.get("password"))
    if user is None:
        return JsonResponse({"says": "no such user"}, status=403)
    login(request, user)
    return JsonResponse({"name": user.get_username()})


@csrf_exempt
@require_POST
def sign_out(request):
    logout(request)
    return JsonResponse({})


urlpatterns = [
    path("orders/<str:item>", accept),
    path("orders/<int:order>/state", look),
    path("login", sign_in),
    path("logout", sign_out),
]
