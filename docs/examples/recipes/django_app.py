import sys
from django.conf import settings
from django.core.management import execute_from_command_line
from django.http import HttpResponse, JsonResponse
from django.urls import path
from live.client import Event, SyncLiveBoard

def like(request, post):
    return JsonResponse({"counted": live.post(Event(post)).accepted})

def page(request):
    return HttpResponse('<iframe src="http://127.0.0.1:8000/embed/posts"></iframe>')

urlpatterns = [path("like/<post>", like), path("", page)]
settings.configure(ROOT_URLCONF=__name__, DEBUG=True)
with SyncLiveBoard("http://127.0.0.1:8000") as live:
    execute_from_command_line(sys.argv)
