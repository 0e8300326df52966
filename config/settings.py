"""All settings, flat, from the environment. `docs/settings.md` documents every variable."""

import os
import re
from pathlib import Path

from celery.schedules import crontab

import config.celery  # noqa: F401  names the app, so that every process's tasks find it
from config import env
from config.secrets import secret_key

BASE_DIR = Path(__file__).resolve().parent.parent
VERSION = re.findall(r"^## (\d+\.\d+\.\d+)", (BASE_DIR / "CHANGELOG.md").read_text(), re.M)[0]

# --- Where things are ---------------------------------------------------------------------------

DATA_DIR = env.directory("DATA_DIR", BASE_DIR / ".data")
# The planner's compiled code is kept beside its sources, else (in the image) with the data.
if not os.access(BASE_DIR / "allocator" / "core" / "compiled", os.W_OK):
    os.environ.setdefault("NUMBA_CACHE_DIR", str(DATA_DIR / "compiled"))
DATABASES = {"default": env.database("DATABASE_URL", f"sqlite:///{DATA_DIR / 'allotment.sqlite3'}")}
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
WEB_PORT = env.integer("WEB_PORT", 8000, least=1, most=65535)

# --- Security -----------------------------------------------------------------------------------

LOCAL_HOSTS = ("127.0.0.1", "localhost", "[::1]")
DEBUG = env.boolean("DEBUG", False)
# True behind a proxy that ends TLS: redirects to https, secure cookies, HSTS.
SECURE = env.boolean("SECURE", False)
ALLOWED_HOSTS = env.names("ALLOWED_HOSTS", LOCAL_HOSTS)
CSRF_TRUSTED_ORIGINS = env.origins("CSRF_TRUSTED_ORIGINS")
# Only this machine's own browser reaches an installation with nothing but local host names.
SECRET_KEY = secret_key(DATA_DIR, may_generate=not SECURE and set(ALLOWED_HOSTS) <= {*LOCAL_HOSTS})
SECURE_PROXY_SSL_HEADER = ("HTTP_X_FORWARDED_PROTO", "https") if SECURE else None
SECURE_SSL_REDIRECT = SECURE
# How many proxies stand before the server: that far from its end X-Forwarded-For is believed.
PROXIES = env.integer("PROXIES", 1 if SECURE else 0, least=0, most=9)
SECURE_REDIRECT_EXEMPT = [r"^healthz$"]  # asked over plain HTTP from inside the container
SECURE_HSTS_SECONDS = 365 * 24 * 3600 if SECURE else 0
SECURE_HSTS_INCLUDE_SUBDOMAINS = SECURE
SECURE_HSTS_PRELOAD = SECURE
SESSION_COOKIE_SECURE = SECURE
CSRF_COOKIE_SECURE = SECURE
SESSION_COOKIE_HTTPONLY = True
X_FRAME_OPTIONS = "DENY"
SECURE_REFERRER_POLICY = "same-origin"
AUTHENTICATION_BACKENDS = ["config.sign_in.LimitedBackend"]
AUTH_PASSWORD_VALIDATORS = [
    {"NAME": f"django.contrib.auth.password_validation.{name}"}
    for name in (
        "UserAttributeSimilarityValidator",
        "MinimumLengthValidator",
        "CommonPasswordValidator",
        "NumericPasswordValidator",
    )
]

# --- What is charged and planned ----------------------------------------------------------------

TIMESTEP_MINUTES = env.timestep_minutes("TIMESTEP_MINUTES", 30)
HORIZON_HOURS = env.integer("HORIZON_HOURS", 24, least=1, most=48)
# A GPU's horizon is one 64-bit word of the planner.
HORIZON_TIMESTEPS = min(64, HORIZON_HOURS * 60 // TIMESTEP_MINUTES)
MINIMUM_RUNTIME_MAX_HOURS = env.integer("MINIMUM_RUNTIME_MAX_HOURS", 8, least=1, most=48)
DEFAULT_MINIMUM_RUNTIME_MINUTES = env.integer(
    "DEFAULT_MINIMUM_RUNTIME_MINUTES", 120, least=0, most=MINIMUM_RUNTIME_MAX_HOURS * 60
)
SESSION_MAX_HOURS = env.integer("SESSION_MAX_HOURS", 12, least=1, most=168)  # extensions included
USAGE_WINDOW_DAYS = env.integer("USAGE_WINDOW_DAYS", 7, least=1, most=90)
USAGE_HALF_LIFE_HOURS = env.integer("USAGE_HALF_LIFE_HOURS", 0, least=0, most=90 * 24)  # 0: none
PREEMPTION_CAP_PERCENT = env.integer("PREEMPTION_CAP_PERCENT", 5, least=0, most=100)
PREEMPTED_AGAIN_MINUTES = env.integer("PREEMPTED_AGAIN_MINUTES", 120, least=0, most=24 * 60)
# Full mode plans in the background, this often (0: never) and for so long; one core.
FULL_PLAN_MINUTES = env.integer("FULL_PLAN_MINUTES", 60, least=0, most=24 * 60)
FULL_PLAN_SECONDS = env.integer("FULL_PLAN_SECONDS", 60, least=1, most=3000)
# For so long what each cycle saw and planned can be looked at again; 0: for ever.
CYCLES_KEPT_DAYS = env.integer("CYCLES_KEPT_DAYS", 90, least=0, most=3650)
# Of the rates that may come to a service its forecast covers so many.
CAPACITY_PERCENT = env.integer("CAPACITY_PERCENT", 95, least=50, most=99)
TRAFFIC_KEPT_DAYS = env.integer("TRAFFIC_KEPT_DAYS", 56, least=28, most=400)
SIMULATIONS_KEPT_DAYS = env.integer("SIMULATIONS_KEPT_DAYS", 90, least=0, most=3650)
DRIFT_WINDOW = env.integer("DRIFT_WINDOW", 50, least=20, most=5000)  # newest forecasts of a kind
NODE_FAILURE_REFUND = env.one_of("NODE_FAILURE_REFUND", "all", ("all", "checkpoint", "none"))
ORGANISATION_TIME_ZONE = env.time_zone("ORGANISATION_TIME_ZONE", "UTC")
# True: what changes the plan wakes a worker once it is committed. False: the watch finds it.
REPLAN_AT_ONCE = env.boolean("REPLAN_AT_ONCE", True)

# --- Cost and usage files -----------------------------------------------------------------------

# What a credit costs, in a national currency; None: files of costs have none but 0.
FOCUS_CREDIT_PRICE = env.price("FOCUS_CREDIT_PRICE")
FOCUS_CURRENCY = env.currency("FOCUS_CURRENCY", "USD")
FOCUS_NAMES_PEOPLE = env.boolean("FOCUS_NAMES_PEOPLE", False)

# Fonts (TTF or OTF files) for letters in PDFs that the ones that come with it don't have.
PDF_FONTS = env.files("PDF_FONTS")

# --- Django -------------------------------------------------------------------------------------

INSTALLED_APPS = [
    "django.contrib.admin",
    "django.contrib.auth",
    "django.contrib.contenttypes",
    "django.contrib.sessions",
    "django.contrib.messages",
    "django.contrib.staticfiles",
    "django_htmx",
    "django_filters",
    "rest_framework",
    "rest_framework.authtoken",
    "drf_spectacular",
    "drf_spectacular_sidecar",
    # One line, bottom to top: imports and foreign keys point only to the apps above.
    "clusters",
    "budgets",
    "workloads",
    "ledger",
    "forecasting",
    "allocator",
]
MIDDLEWARE = [
    "django.middleware.security.SecurityMiddleware",
    "whitenoise.middleware.WhiteNoiseMiddleware",
    # Static files come compressed from the one above; this is for pages. Against BREACH Django
    # pads each by a random number of bytes (since 4.2), and masks its CSRF token anew.
    "django.middleware.gzip.GZipMiddleware",
    "config.csp.content_security_policy",
    "django.contrib.sessions.middleware.SessionMiddleware",
    "config.language.ReadersLanguage",
    "django.middleware.common.CommonMiddleware",
    "django.middleware.csrf.CsrfViewMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    "django.contrib.messages.middleware.MessageMiddleware",
    "django.middleware.clickjacking.XFrameOptionsMiddleware",
    "django_htmx.middleware.HtmxMiddleware",
    "config.shell.parts",
    "config.signed_out.come_back",
    "config.shell.zone",
    "config.renames.FollowRenames",
]
ROOT_URLCONF = "config.urls"
WSGI_APPLICATION = "config.wsgi.application"
TEMPLATES = [
    {
        "BACKEND": "config.plain_templates.PlainTemplates",
        "DIRS": [BASE_DIR / "templates"],
        "APP_DIRS": True,
        "OPTIONS": {
            "context_processors": [
                "django.template.context_processors.request",
                "django.contrib.auth.context_processors.auth",
                "django.contrib.messages.context_processors.messages",
                "config.shell.around",
            ]
        },
    }
]
LOGIN_URL = "sign-in"
LOGIN_REDIRECT_URL = "/"
LOGOUT_REDIRECT_URL = "sign-in"
USE_TZ = True
TIME_ZONE = "UTC"
USE_I18N = True
LANGUAGE_CODE = "en"
LANGUAGES = [("en", "English"), ("pt-br", "Português")]  # as readers of each call it
LANGUAGE_COOKIE_AGE = 365 * 24 * 60 * 60
LANGUAGE_COOKIE_SAMESITE = "Lax"
LANGUAGE_COOKIE_HTTPONLY = True
LANGUAGE_COOKIE_SECURE = SECURE
LOCALE_PATHS = [BASE_DIR / "locale"]

# --- Static files -------------------------------------------------------------------------------

# True for `manage.py collectstatic` and after it, as in the image: names with hashes, cached long.
COLLECTED_STATIC = env.boolean("COLLECTED_STATIC", False)
STATIC_URL = "/static/"
STATIC_ROOT = BASE_DIR / "staticfiles" if COLLECTED_STATIC else None
STATICFILES_DIRS = [BASE_DIR / "static"]
WHITENOISE_USE_FINDERS = not COLLECTED_STATIC
WHITENOISE_MAX_AGE = 60
STORAGES = {
    "default": {"BACKEND": "django.core.files.storage.FileSystemStorage"},
    "staticfiles": {
        "BACKEND": "whitenoise.storage.CompressedManifestStaticFilesStorage"
        if COLLECTED_STATIC
        else "django.contrib.staticfiles.storage.StaticFilesStorage"
    },
}

# --- API ----------------------------------------------------------------------------------------

API_REQUESTS_PER_MINUTE = env.integer("API_REQUESTS_PER_MINUTE", 6000, least=1, most=1_000_000)
REST_FRAMEWORK = {
    "DEFAULT_AUTHENTICATION_CLASSES": [
        "rest_framework.authentication.TokenAuthentication",
        "rest_framework.authentication.SessionAuthentication",
    ],
    "DEFAULT_PERMISSION_CLASSES": ["rest_framework.permissions.IsAuthenticated"],
    "DEFAULT_RENDERER_CLASSES": ["rest_framework.renderers.JSONRenderer"],
    "DEFAULT_PARSER_CLASSES": ["config.parsers.BoundedJSONParser"],
    "DEFAULT_PAGINATION_CLASS": "config.pagination.Pages",
    "DEFAULT_FILTER_BACKENDS": ["django_filters.rest_framework.DjangoFilterBackend"],
    "DEFAULT_SCHEMA_CLASS": "drf_spectacular.openapi.AutoSchema",
    "DEFAULT_THROTTLE_CLASSES": [
        "rest_framework.throttling.AnonRateThrottle",
        "rest_framework.throttling.UserRateThrottle",
    ],
    "DEFAULT_THROTTLE_RATES": {"anon": "60/min", "user": f"{API_REQUESTS_PER_MINUTE}/min"},
    "NUM_PROXIES": PROXIES,
    "EXCEPTION_HANDLER": "config.problems.handler",
    "TEST_REQUEST_DEFAULT_FORMAT": "json",
}
SPECTACULAR_SETTINGS = {
    "TITLE": "Allotment",
    "DESCRIPTION": "Who gets GPU time, and what each second of it was charged to.",
    "VERSION": VERSION,
    "SERVE_INCLUDE_SCHEMA": False,
    "SWAGGER_UI_DIST": "SIDECAR",
    "SWAGGER_UI_FAVICON_HREF": "SIDECAR",
    "COMPONENT_SPLIT_REQUEST": True,
    "ENUM_NAME_OVERRIDES": {
        "JobKind": "workloads.models.Job.Kind",
        "EntryKind": "ledger.models.Entry.Kind",
        "ByHandKind": "budgets.api.by_hand.KINDS",
        "RoleKind": "budgets.models.Role.Kind",
        "JobState": "workloads.models.Job.State",
        "RunState": "workloads.models.Run.State",
        "SimulationState": "allocator.models.Simulation.State",
        "CycleKind": "allocator.models.Cycle.Kind",
        "ChangeSetStatus": "budgets.models.ChangeSet.Status",
        "RequestStatus": "budgets.models.Request.Status",
        "PeriodStatus": "budgets.models.Period.Status",
    },
}

# --- Celery: two queues, a worker each; work is driven by the database, so late is harmless -------

CELERY_BROKER_URL = env.broker("CELERY_BROKER_URL", "filesystem://")
CELERY_BROKER_TRANSPORT_OPTIONS = env.broker_options(CELERY_BROKER_URL, DATA_DIR / "broker")
CELERY_BROKER_CONNECTION_RETRY_ON_STARTUP = True
CELERY_TIMEZONE = "UTC"
CELERY_TASK_IGNORE_RESULT = True
CELERY_TASK_ACKS_LATE = True
CELERY_WORKER_PREFETCH_MULTIPLIER = 1
CELERY_WORKER_HIJACK_ROOT_LOGGER = False
CELERY_TASK_DEFAULT_QUEUE = "long"
CELERY_TASK_ROUTES = {
    f"allocator.tasks.{name}": {"queue": "cycle"}
    for name in ("tick", "replan", "watch", "warn_sessions")
}
# No task may outlive the broker's patience (env.broker_options), or a second worker starts it too.
CELERY_TASK_TIME_LIMIT = env.LONGEST_TASK_SECONDS
CELERY_TASK_ANNOTATIONS = {
    name: {"time_limit": TIMESTEP_MINUTES * 60} for name in CELERY_TASK_ROUTES
}
CELERY_BEAT_SCHEDULE_FILENAME = str(DATA_DIR / "beat-schedule")
CELERY_BEAT_SCHEDULE = {
    "tick": {
        "task": "allocator.tasks.tick",
        "schedule": crontab(minute=list(range(0, 60, TIMESTEP_MINUTES))),
        "options": {"expires": TIMESTEP_MINUTES * 60},
    },
    "watch": {
        "task": "allocator.tasks.watch",
        "schedule": 5.0,
        "options": {"expires": 5},
    },
    "keep_requests": {
        "task": "allocator.tasks.keep_requests",
        "schedule": 60.0,
        "options": {"expires": 60},
    },
    "keep_checkpoints": {
        "task": "allocator.tasks.keep_checkpoints",
        "schedule": 15 * 60.0,
        "options": {"expires": 15 * 60},
    },
    "keep_holds": {
        "task": "allocator.tasks.keep_holds",
        "schedule": 60 * 60.0,
        "options": {"expires": 60 * 60},
    },
    "keep_simulations": {
        "task": "allocator.tasks.keep_simulations",
        "schedule": 60.0,
        "options": {"expires": 60},
    },
    "keep_statistics": {
        "task": "allocator.tasks.keep_statistics",
        "schedule": crontab(hour=3, minute=5),
        "options": {"expires": 12 * 3600},
    },
    "keep_cycles": {
        "task": "allocator.tasks.keep_cycles",
        "schedule": crontab(hour=3, minute=15),
        "options": {"expires": 12 * 3600},
    },
    "keep_pictures": {
        "task": "allocator.tasks.keep_pictures",
        "schedule": crontab(hour=3, minute=20),
        "options": {"expires": 12 * 3600},
    },
    "look_ahead": {
        "task": "forecasting.tasks.look_ahead",
        "schedule": 5 * 60.0,
        "options": {"expires": 5 * 60},
    },
    "recalibrate": {
        "task": "forecasting.tasks.recalibrate",
        "schedule": crontab(hour=2, minute=35),
        "options": {"expires": 12 * 3600},
    },
    "score_demand": {
        "task": "forecasting.tasks.score_demand",
        "schedule": crontab(hour=2, minute=20),
        "options": {"expires": 12 * 3600},
    },
    "keep_traffic": {
        "task": "forecasting.tasks.keep_traffic",
        "schedule": crontab(hour=3, minute=25),
        "options": {"expires": 12 * 3600},
    },
    "keep_books": {
        "task": "allocator.tasks.keep_books",
        "schedule": crontab(hour=3, minute=10),
        "options": {"expires": 12 * 3600},
    },
    "keep_forecasts": {
        "task": "allocator.tasks.keep_forecasts",
        "schedule": 15 * 60.0,
        "options": {"expires": 15 * 60},
    },
    "retrain": {
        "task": "allocator.tasks.retrain",
        "schedule": crontab(hour=3, minute=30),
        "options": {"expires": 12 * 3600},
    },
    "warn_sessions": {
        "task": "allocator.tasks.warn_sessions",
        "schedule": 15.0,
        "options": {"expires": 15},
    },
    "send_notices": {
        "task": "allocator.tasks.send_notices",
        "schedule": 60.0,
        "options": {"expires": 60},
    },
}
if FULL_PLAN_MINUTES:
    CELERY_BEAT_SCHEDULE["plan_ahead"] = {
        "task": "allocator.tasks.plan_ahead",
        "schedule": FULL_PLAN_MINUTES * 60.0,
        "options": {"expires": FULL_PLAN_MINUTES * 60},
    }

# --- E-mail: a copy of each notice, sent by a worker ----------------------------------------------

NO_EMAIL = "django.core.mail.backends.dummy.EmailBackend"
EMAIL_DELIVERY = env.one_of("EMAIL_DELIVERY", "none", ("none", "console", "smtp"))
EMAIL_BACKEND = {
    "none": NO_EMAIL,
    "console": "django.core.mail.backends.console.EmailBackend",
    "smtp": "django.core.mail.backends.smtp.EmailBackend",
}[EMAIL_DELIVERY]
EMAIL_HOST = env.text("EMAIL_HOST", "localhost")
EMAIL_PORT = env.integer("EMAIL_PORT", 25, least=1, most=65535)
EMAIL_HOST_USER = env.text("EMAIL_HOST_USER")
EMAIL_HOST_PASSWORD = env.secret("EMAIL_HOST_PASSWORD")
EMAIL_SECURITY = env.one_of("EMAIL_SECURITY", "none", ("none", "starttls", "tls"))
EMAIL_USE_TLS = EMAIL_SECURITY == "starttls"
EMAIL_USE_SSL = EMAIL_SECURITY == "tls"
EMAIL_TIMEOUT = 20  # seconds
DEFAULT_FROM_EMAIL = env.text("EMAIL_FROM", "allotment@localhost")
# What links in e-mail begin with.
SITE_URL = env.text("SITE_URL", f"http://localhost:{WEB_PORT}").rstrip("/")

# --- Logging ------------------------------------------------------------------------------------

LOG_LEVEL = env.one_of("LOG_LEVEL", "INFO", ("DEBUG", "INFO", "WARNING", "ERROR"))
LOGGING = {
    "version": 1,
    "disable_existing_loggers": False,
    "formatters": {"line": {"format": "%(asctime)s %(levelname)s %(name)s: %(message)s"}},
    "handlers": {"stderr": {"class": "logging.StreamHandler", "formatter": "line"}},
    "root": {"handlers": ["stderr"], "level": LOG_LEVEL},
    # Each PDF would tell what it leaves out of its fonts.
    "loggers": {name: {"level": "ERROR"} for name in ("fontTools", "fpdf")},
}
