"""The one settings file. Values come from typed environment variables (portal.environment) and fail loudly."""

import datetime as dt
from pathlib import Path
from typing import Any

from celery.schedules import schedule
from kombu import Queue

from ledger.vocabulary import HealthAction, JobKind
from portal import environment as env

BASE_DIR = Path(__file__).resolve().parent.parent
DATA_DIR = Path(env.text("GPU_COMMONS_DATA", str(BASE_DIR / ".data")))
DEBUG = env.flag("DEBUG")
SECRET_KEY = env.required(
    "SECRET_KEY", "run `python3 manage.py up`, which makes one, or set at least 50 random characters"
)
ALLOWED_HOSTS = env.items("ALLOWED_HOSTS", "127.0.0.1,localhost,[::1]")
PORTAL_URL = env.text("PORTAL_URL", "http://127.0.0.1:8000")
CSRF_TRUSTED_ORIGINS = env.items("CSRF_TRUSTED_ORIGINS", "")
HTTPS = env.flag("HTTPS")
PROXIES = env.integer("PROXIES", 0)  # how many of ours stand in front and write X-Forwarded-For and X-Forwarded-Proto
METRICS_TOKEN = env.text("METRICS_TOKEN")
RATE_FACTOR = env.integer("RATE_FACTOR", 1)  # multiplies portal.api.throttles.RATES; 0 = nobody is refused

INSTALLED_APPS = [
    "django.contrib.auth",
    "django.contrib.contenttypes",
    "django.contrib.sessions",
    "django.contrib.messages",
    "django.contrib.staticfiles",
    "django.contrib.postgres",
    "django.contrib.humanize",
    "rest_framework",
    "django_filters",
    "drf_spectacular",
    "drf_spectacular_sidecar",
    "guardian",
    "django_htmx",
    "axes",
    "ledger",
    "scheduler",
    "portal",
]
MIDDLEWARE = [
    "django.middleware.security.SecurityMiddleware",
    "whitenoise.middleware.WhiteNoiseMiddleware",
    "portal.middleware.request_id",
    "csp.middleware.CSPMiddleware",
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.middleware.locale.LocaleMiddleware",
    "django.middleware.common.CommonMiddleware",
    "django.middleware.csrf.CsrfViewMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    "portal.middleware.personal",
    "portal.sessions.activity",
    "django.contrib.messages.middleware.MessageMiddleware",
    "django.middleware.clickjacking.XFrameOptionsMiddleware",
    "django_htmx.middleware.HtmxMiddleware",
    "portal.api.throttles.PageRates",
    "axes.middleware.AxesMiddleware",
]
ROOT_URLCONF = "portal.urls"
WSGI_APPLICATION = "portal.wsgi.application"
TEMPLATES = [
    {
        "BACKEND": "django.template.backends.django.DjangoTemplates",
        "DIRS": [BASE_DIR / "templates"],
        "APP_DIRS": True,
        "OPTIONS": {
            "context_processors": [
                "django.template.context_processors.request",
                "django.contrib.auth.context_processors.auth",
                "django.contrib.messages.context_processors.messages",
            ],
        },
    }
]

DATABASE_ROLE = env.text("DATABASE_ROLE", "gpu_commons_app")
DATABASES = {
    "default": env.database(
        env.required("DATABASE_URL", "run `python3 manage.py up`, or set postgresql://user:password@host:port/name"),
        DATABASE_ROLE,
    )
}
AUTH_USER_MODEL = "ledger.User"
AUTHENTICATION_BACKENDS = [
    "axes.backends.AxesStandaloneBackend",  # first: it closes the door before a password is looked at
    "django.contrib.auth.backends.ModelBackend",
    "guardian.backends.ObjectPermissionBackend",
]
ANONYMOUS_USER_NAME = None
AUTH_PASSWORD_VALIDATORS = [
    {"NAME": "django.contrib.auth.password_validation.MinimumLengthValidator", "OPTIONS": {"min_length": 12}},
    {"NAME": "django.contrib.auth.password_validation.CommonPasswordValidator"},
]
FORM_RENDERER = "portal.form_renderer.QuickSelects"
LOGIN_URL = "sign-in"
LOGIN_REDIRECT_URL = "home"
LOGOUT_REDIRECT_URL = "sign-in"
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"

# Failed passwords until the door is closed: of an account from one address, and of an address over all accounts.
SIGN_IN_LIMIT = env.integer("SIGN_IN_LIMIT", 5, at_least=1)
SIGN_IN_ADDRESS_LIMIT = env.integer("SIGN_IN_ADDRESS_LIMIT", 50, at_least=1)
AXES_HANDLER = "portal.signin.Handler"
AXES_FAILURE_LIMIT = SIGN_IN_LIMIT
AXES_COOLOFF_TIME = dt.timedelta(minutes=env.integer("SIGN_IN_WAIT_MINUTES", 15, at_least=1))
AXES_LOCKOUT_PARAMETERS = [["username", "ip_address"]]
AXES_LOCKOUT_CALLABLE = "portal.signin.locked_out"
AXES_USERNAME_CALLABLE = "portal.signin.counted_name"
AXES_CLIENT_IP_CALLABLE = "portal.origin.counted_address"
AXES_RESET_ON_SUCCESS = True
AXES_RESET_COOL_OFF_ON_FAILURE_DURING_LOCKOUT = False
AXES_DISABLE_ACCESS_LOG = True  # the audit trail has every sign-in
AXES_VERBOSE = False

LANGUAGE_CODE = "en"
LANGUAGES = [("en", "English"), ("zh-hans", "简体中文")]
LOCALE_PATHS = [BASE_DIR / "portal" / "locale"]
TIME_ZONE = "UTC"
USE_I18N = True
USE_TZ = True

STATIC_URL = "/static/"
STATICFILES_DIRS = [BASE_DIR / "static"]
WHITENOISE_USE_FINDERS = True
WHITENOISE_AUTOREFRESH = DEBUG
WHITENOISE_MAX_AGE = 3600

SESSION_ENGINE = "ledger.sessions"
SESSION_COOKIE_NAME, CSRF_COOKIE_NAME = (f"{'__Host-' if HTTPS else ''}{name}" for name in ("sessionid", "csrftoken"))
SESSION_COOKIE_HTTPONLY = True
SESSION_COOKIE_SAMESITE = "Lax"
SESSION_COOKIE_AGE = 3600 * env.integer("SESSION_HOURS", 12, at_least=1)  # after the sign-in, whatever happens
SESSION_IDLE_MINUTES = env.integer("SESSION_IDLE_MINUTES", 120, at_least=1)
SESSION_COOKIE_SECURE = CSRF_COOKIE_SECURE = HTTPS
SECURE_SSL_REDIRECT = HTTPS
SECURE_REDIRECT_EXEMPT = [r"^healthz$", r"^readyz$"]
SECURE_PROXY_SSL_HEADER = ("HTTP_X_FORWARDED_PROTO", "https") if PROXIES else None
SECURE_HSTS_SECONDS = 31_536_000 if HTTPS else 0
SECURE_HSTS_INCLUDE_SUBDOMAINS = SECURE_HSTS_PRELOAD = HTTPS
SECURE_REFERRER_POLICY = "same-origin"
X_FRAME_OPTIONS = "DENY"
DATA_UPLOAD_MAX_MEMORY_SIZE = 2 * 1024 * 1024
CONTENT_SECURITY_POLICY = {
    "DIRECTIVES": {
        "default-src": ["'self'"],
        "script-src": ["'self'"],
        "style-src": ["'self'", "'unsafe-inline'"],  # Plotly sets style attributes; scripts stay strict
        "img-src": ["'self'", "data:", "blob:"],
        "connect-src": ["'self'"],
        "object-src": ["'none'"],
        "base-uri": ["'none'"],
        "frame-ancestors": ["'none'"],
        "form-action": ["'self'"],
    }
}

REST_FRAMEWORK = {
    "DEFAULT_AUTHENTICATION_CLASSES": [
        "portal.api.auth.BearerAuthentication",
        "rest_framework.authentication.SessionAuthentication",
    ],
    "DEFAULT_PERMISSION_CLASSES": ["rest_framework.permissions.IsAuthenticated"],
    "DEFAULT_THROTTLE_CLASSES": ["portal.api.throttles.PerCaller"],
    "DEFAULT_RENDERER_CLASSES": ["rest_framework.renderers.JSONRenderer"],
    "DEFAULT_PARSER_CLASSES": ["portal.api.parsing.StrictJSONParser"],
    "DEFAULT_PAGINATION_CLASS": "portal.api.paging.NewestFirst",
    "DEFAULT_SCHEMA_CLASS": "drf_spectacular.openapi.AutoSchema",
    "EXCEPTION_HANDLER": "portal.api.problems.handler",
    "PAGE_SIZE": 50,
    "TEST_REQUEST_DEFAULT_FORMAT": "json",
}
SPECTACULAR_SETTINGS = {
    "TITLE": "GPU Commons",
    "DESCRIPTION": "One pool, one scheduler and one ledger for container shares, blocks and whole machines.",
    "VERSION": "1",
    "SWAGGER_UI_DIST": "SIDECAR",
    "SWAGGER_UI_FAVICON_HREF": "SIDECAR",
    "SERVE_INCLUDE_SCHEMA": False,
    "SERVE_PERMISSIONS": ["rest_framework.permissions.IsAuthenticated"],
    "ENUM_NAME_OVERRIDES": {
        "JobKindEnum": [str(kind) for kind in JobKind],
        "HealthActionEnum": [str(action) for action in HealthAction],
    },
}

REDIS_URL = env.required("REDIS_URL", "run `python3 manage.py up`, or set redis://:password@host:port/0")
CELERY_BROKER_URL = REDIS_URL
CELERY_TASK_IGNORE_RESULT = True
CELERY_TASK_SERIALIZER = "json"
CELERY_ACCEPT_CONTENT = ["json"]
CELERY_TASK_ACKS_LATE = True
CELERY_TASK_REJECT_ON_WORKER_LOST = True
CELERY_WORKER_PREFETCH_MULTIPLIER = 1
CELERY_BROKER_CONNECTION_RETRY_ON_STARTUP = True
CELERY_BROKER_CONNECTION_MAX_RETRIES = None
CELERY_BROKER_TRANSPORT_OPTIONS = {
    "visibility_timeout": 3600,
    "socket_timeout": 5,
    "socket_connect_timeout": 2,
    "socket_keepalive": True,
}
CELERY_TIMEZONE = "UTC"
CELERY_ENABLE_UTC = True
CELERY_TASK_DEFAULT_QUEUE = "books"
CELERY_TASK_QUEUES = [Queue(name) for name in ("placement", "drivers", "inventory", "books", "health")]
CELERY_TASK_ROUTES = {
    "scheduler.tick": {"queue": "placement"},
    "scheduler.run_commands": {"queue": "drivers"},
    "scheduler.observe": {"queue": "drivers"},
    "scheduler.sync_inventory": {"queue": "inventory"},
    "scheduler.zones": {"queue": "inventory"},
    "scheduler.learn": {"queue": "inventory"},
    "scheduler.reconcile": {"queue": "inventory"},
    "ledger.expire_requests": {"queue": "books"},
    "scheduler.reclaim": {"queue": "books"},
    "scheduler.tell": {"queue": "books"},
    "scheduler.alerts": {"queue": "health"},
    "scheduler.send_alerts": {"queue": "books"},
    "scheduler.drain_quota": {"queue": "inventory"},
    "scheduler.service": {"queue": "health"},
    "scheduler.drills": {"queue": "health"},
    "scheduler.health": {"queue": "health"},
    "scheduler.watch_processes": {"queue": "health"},
    "scheduler.scrape": {"queue": "books"},  # others may be slow to answer: what looks at cards must not wait for them
    "ledger.trim_metrics": {"queue": "health"},
    "scheduler.trim_alerts": {"queue": "books"},
    "ledger.copy_samples": {"queue": "health"},
    "ledger.sum_up_hours": {"queue": "health"},
    "ledger.drop_old_samples": {"queue": "health"},
    "ledger.seal_audit": {"queue": "books"},
    "ledger.roll_up": {"queue": "books"},
    "ledger.check_books": {"queue": "books"},
}


def every(seconds: float, task: str) -> dict[str, object]:
    """A beat entry; the message expires when the next one is due, so a stopped worker finds no pile."""
    return {"task": task, "schedule": schedule(seconds), "options": {"expires": max(seconds, 1.0) * 2}}


CELERY_BEAT_SCHEDULE = {
    "tick": every(2, "scheduler.tick"),
    "run-commands": every(1, "scheduler.run_commands"),
    "observe": every(1, "scheduler.observe"),
    "sync-inventory": every(30, "scheduler.sync_inventory"),
    "zones": every(5, "scheduler.zones"),
    "learn": every(60, "scheduler.learn"),
    "reconcile": every(10, "scheduler.reconcile"),
    "expire-requests": every(300, "ledger.expire_requests"),
    "reclaim": every(10, "scheduler.reclaim"),
    "tell": every(10, "scheduler.tell"),
    "alerts": every(5, "scheduler.alerts"),
    "send-alerts": every(5, "scheduler.send_alerts"),
    "drain-quota": every(30, "scheduler.drain_quota"),
    "service": every(2, "scheduler.service"),
    "drills": every(2, "scheduler.drills"),
    "health": every(2, "scheduler.health"),
    "watch-processes": every(5, "scheduler.watch_processes"),
    "scrape": every(10, "scheduler.scrape"),
    "trim-metrics": every(600, "ledger.trim_metrics"),
    "trim-alerts": every(3600, "scheduler.trim_alerts"),
    "copy-samples": every(2, "ledger.copy_samples"),
    "sum-up-hours": every(300, "ledger.sum_up_hours"),
    "drop-old-samples": every(3600, "ledger.drop_old_samples"),
    "seal-audit": every(5, "ledger.seal_audit"),
    "roll-up": every(60, "ledger.roll_up"),
    "check-books": every(60, "ledger.check_books"),
}

TWO_PERSONS_CARDS = env.integer("TWO_PERSONS_CARDS", 64)  # requests for more cards than this need two approvals
TWO_PERSONS_DAYS = env.integer("TWO_PERSONS_DAYS", 366)  # and those for more days
ZONE_WINDOW_HOURS = env.number("ZONE_WINDOW_HOURS", 48.0)  # how long the zones of a zone plan are observed
QUOTA_WINDOW_HOURS = env.number("QUOTA_WINDOW_HOURS", 48.0)  # how long the effect of a change of quota is observed
QUOTA_DRAIN_MIN_HOURS = env.number("QUOTA_DRAIN_MIN_HOURS", 24.0)  # what a cut leaves running work at least

# The end of a project: what its jobs have from the checkpoint signal to the forced stop, and where its notices go.
PROJECT_STOP_GRACE_S = env.integer("PROJECT_STOP_GRACE_S", 60)
# What the portal may call on somebody's word (scheduler.addresses): host:port that it else would not, and private nets.
OUTBOUND_ALLOW = env.host_ports("OUTBOUND_ALLOW")
OUTBOUND_PRIVATE = env.flag("OUTBOUND_PRIVATE", default=True)
PROJECT_WEBHOOK_URL = env.web_address("PROJECT_WEBHOOK_URL")  # "" = none
PROJECT_WEBHOOK_SECRET = env.secret_for("PROJECT_WEBHOOK_SECRET", PROJECT_WEBHOOK_URL)
# Where alerts go (scheduler.alert_sending); "" = this site has no such channel, and the alerts' pages say so.
ALERTMANAGER_URL = env.web_address("ALERTMANAGER_URL")
ALERTMANAGER_TOKEN = env.text("ALERTMANAGER_TOKEN")
ALERT_WEBHOOK_URL = env.web_address("ALERT_WEBHOOK_URL")
ALERT_WEBHOOK_SECRET = env.secret_for("ALERT_WEBHOOK_SECRET", ALERT_WEBHOOK_URL)
ALERT_MAIL_TO = env.items("ALERT_MAIL_TO", "")
ALERT_SIMULATED = env.flag("ALERT_SIMULATED")  # alerts of make-believe hardware leave the pages, too
EMAIL_HOST = env.text("EMAIL_HOST")  # "" = this site sends no mail, and notices say so
EMAIL_PORT = env.integer("EMAIL_PORT", 25, at_least=1)
EMAIL_HOST_USER, EMAIL_HOST_PASSWORD = env.text("EMAIL_HOST_USER"), env.text("EMAIL_HOST_PASSWORD")
EMAIL_USE_TLS, EMAIL_USE_SSL = env.flag("EMAIL_USE_TLS"), env.flag("EMAIL_USE_SSL")
EMAIL_TIMEOUT = 10
EMAIL_BACKEND = f"django.core.mail.backends.{'smtp' if EMAIL_HOST else 'dummy'}.EmailBackend"
DEFAULT_FROM_EMAIL = SERVER_EMAIL = env.text("EMAIL_FROM", "gpu-commons@localhost")

# How long what agents tell of cards is kept: each sample, and the hours that they are summed up to.
SAMPLES_KEPT_DAYS = env.integer("SAMPLES_KEPT_DAYS", 14, at_least=2)
ALERTS_KEPT_DAYS = env.integer("ALERTS_KEPT_DAYS", 90, at_least=1)  # alerts that are over, and their messages
SAMPLE_HOURS_KEPT_DAYS = env.integer("SAMPLE_HOURS_KEPT_DAYS", 400, at_least=2)

# The return to service of what was taken out for its health.
CASE_DWELL_HOURS = env.number("CASE_DWELL_HOURS", 24.0)  # what is out for longer is marked
BURN_IN_TIMEOUT_S = env.integer("BURN_IN_TIMEOUT_S", 900, at_least=1)  # what an agent has for the test of one card
RESET_TIMEOUT_S = env.integer("RESET_TIMEOUT_S", 300, at_least=1)
SIMULATED_SERVICE_S = env.number("SIMULATED_SERVICE_S", 2.0)  # what tests, resets and reboots take on simulated nodes
# Drills: what each step may take, and how often each zone is to have one.
DRILL_HOLD_S = env.number("DRILL_HOLD_S", 5.0)  # from the start until it is held
DRILL_AVOID_S = env.number("DRILL_AVOID_S", 10.0)  # from the hold until placing avoids it
DRILL_ALERT_S = env.number("DRILL_ALERT_S", 120.0)  # from the hold until the alert is out, on each channel
DRILL_RETURN_S = env.number("DRILL_RETURN_S", 3600.0)  # from the hold until it is back
DRILL_EVERY_DAYS = env.number("DRILL_EVERY_DAYS", 90.0)
# What processes hold on a card: what a share may hold above its promise, the larger of the two; names of processes that
# belong to the machine itself; and how long a sample may be older than the end of an allocation.
OVERUSE_TOLERANCE_PERCENT = env.integer("OVERUSE_TOLERANCE_PERCENT", 2)
OVERUSE_TOLERANCE_MIB = env.integer("OVERUSE_TOLERANCE_MIB", 64)
SYSTEM_PROCESSES = env.items(
    "SYSTEM_PROCESSES",
    "Xorg,Xwayland,gnome-shell,nvidia-persiste*,nvidia-cuda-mps*,nv-hostengine,nv-fabricmanager,dcgm*,dcgmi,nvvs",
)
ORPHAN_GRACE_S = env.integer("ORPHAN_GRACE_S", 15, at_least=1)
JOB_METRICS_KEPT_DAYS = env.integer("JOB_METRICS_KEPT_DAYS", 14, at_least=1)  # what applications tell of themselves

FAIR_SHARE_HALF_LIFE_HOURS = env.number("FAIR_SHARE_HALF_LIFE_HOURS", 168.0)  # after which usage counts half
# Work that is stopped so that others get what they are guaranteed, or for a higher tier.
PREEMPT_MIN_RUN_S = env.integer("PREEMPT_MIN_RUN_S", 600)  # before it nothing is stopped; doubles each time
PREEMPT_MOST_RUN_S = env.integer("PREEMPT_MOST_RUN_S", 14_400)  # however often it doubles: so long owners wait at most
PREEMPT_GRACE_S = env.integer("PREEMPT_GRACE_S", 60)  # from the checkpoint signal until it is ended
PREEMPT_KEPT_S = env.integer("PREEMPT_KEPT_S", 600, at_least=1)  # after the grace, so long nodes are kept
PREEMPT_MOST_VICTIMS = env.integer("PREEMPT_MOST_VICTIMS", 64)  # attempts for one job; 0 = nothing is ever stopped
PREEMPT_CLAIMANTS = env.integer("PREEMPT_CLAIMANTS", 4)  # waiting jobs a tick for which others are stopped

# How the make-believe hardware of the simulated driver behaves; all draws come from the seed.
SIMULATED_WORLD: dict[str, Any] = {
    "seed": env.integer("SIMULATED_SEED", 1),
    "start_delay_s": (0.0, env.number("SIMULATED_START_DELAY_S", 0.2)),
    "fail_rate": env.number("SIMULATED_FAIL_RATE", 0.0),
    "start_fail_rate": env.number("SIMULATED_START_FAIL_RATE", 0.0),
    "lost_reply_rate": env.number("SIMULATED_LOST_REPLY_RATE", 0.0),
}

LOGGING = {
    "version": 1,
    "disable_existing_loggers": False,
    "formatters": {"line": {"format": "%(asctime)s %(levelname)s %(name)s %(message)s"}},
    "handlers": {"console": {"class": "logging.StreamHandler", "formatter": "line"}},
    "root": {"handlers": ["console"], "level": env.text("LOG_LEVEL", "INFO")},
    "loggers": {"django.request": {"level": "ERROR"}, "axes": {"level": "WARNING"}},
}
