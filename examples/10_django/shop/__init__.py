"""A Django application whose orders are fulfilled by procedures.

pip install django gunicorn
python manage.py migrate --run-syncdb
actorproc run shop.service &
gunicorn -w 2 shop.wsgi

curl -X POST localhost:8000/orders/book
curl localhost:8000/orders/1/state

The dashboard below /ops, for staff (python manage.py createsuperuser), is in asgi.py.
"""
