"""The addresses of the site."""

from django.contrib.auth.views import LoginView, LogoutView
from django.urls import path

from songs.views import like, page

urlpatterns = [
    path("", page, name="page"),
    path("like/<song>", like, name="like"),
    path("login", LoginView.as_view(), name="login"),
    path("logout", LogoutView.as_view(), name="logout"),
]
