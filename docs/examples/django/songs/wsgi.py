"""The application for gunicorn: `gunicorn --preload --workers 2 songs.wsgi`."""

import os

from django.core.wsgi import get_wsgi_application

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "songs.settings")
application = get_wsgi_application()
