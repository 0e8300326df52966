"""Entry point of the web server: `gunicorn config.wsgi`."""

import os

from django.core.wsgi import get_wsgi_application

from config.env import load_settings_or_exit

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "config.settings")
load_settings_or_exit()

application = get_wsgi_application()
