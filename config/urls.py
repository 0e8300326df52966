"""Every route of the product, on one page."""

from django.contrib import admin
from django.contrib.auth.views import LoginView, LogoutView
from django.urls import URLPattern, URLResolver, include, path
from drf_spectacular.views import SpectacularAPIView, SpectacularSwaggerSplitView
from rest_framework.routers import SimpleRouter

from config.healthz import healthz

# --- API: viewsets in the router, single endpoints in `api` -------------------------------------

router = SimpleRouter(trailing_slash=False)

api: list[URLPattern | URLResolver] = [
    path("schema", SpectacularAPIView.as_view(), name="schema"),
    path("docs", SpectacularSwaggerSplitView.as_view(url_name="schema"), name="docs"),
    *router.urls,
]

# --- Pages --------------------------------------------------------------------------------------

pages: list[URLPattern | URLResolver] = [
    path("sign-in", LoginView.as_view(redirect_authenticated_user=True), name="sign-in"),
    path("sign-out", LogoutView.as_view(), name="sign-out"),
]

# --- Operations ---------------------------------------------------------------------------------

operations: list[URLPattern | URLResolver] = [
    path("healthz", healthz, name="healthz"),
    path("admin/", admin.site.urls),
]

urlpatterns: list[URLPattern | URLResolver] = [
    path("api/v1/", include(api)),
    *pages,
    *operations,
]
