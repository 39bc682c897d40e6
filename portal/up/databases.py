"""Starts PostgreSQL and Valkey of a data folder under the supervisor, or uses the servers that are named instead."""

import signal
from collections.abc import Mapping
from dataclasses import dataclass, field

import psycopg
import redis

from portal.up import binaries, ports
from portal.up.binaries import BinariesError
from portal.up.folder import DataFolder
from portal.up.placement import PlacementError, choose_place
from portal.up.postgres import STOP_SIGNAL, Cluster, PostgresError
from portal.up.process import account_for_postgres
from portal.up.supervisor import Service, StartFailed, Supervisor
from portal.up.valkey import Valkey

POSTGRES, VALKEY = 0, 1
START_SECONDS = 60.0


class Unreachable(Exception):
    """A server that the environment names does not answer."""


ERRORS = (BinariesError, PlacementError, PostgresError, StartFailed, Unreachable, OSError)


@dataclass(frozen=True)
class Databases:
    """How the portal connects."""

    database_url: str = field(repr=False)
    redis_url: str = field(repr=False)


def start(folder: DataFolder, supervisor: Supervisor, environ: Mapping[str, str]) -> Databases:
    """Both, in order; DATABASE_URL and REDIS_URL name servers of one's own."""
    database_url, redis_url = environ.get("DATABASE_URL"), environ.get("REDIS_URL")
    if database_url:
        check_database(database_url)
        supervisor.say("postgres   not started: DATABASE_URL names a server")
    else:
        database_url = start_postgres(folder, supervisor)
    if redis_url:
        check_redis(redis_url)
        supervisor.say("valkey     not started: REDIS_URL names a server")
    else:
        redis_url = start_valkey(folder, supervisor)
    return Databases(database_url, redis_url)


def port_of(folder: DataFolder, name: str) -> int:
    """The port chosen at the first start; another one only if somebody has taken it since."""
    return folder.remember(name, ports.choose(folder.recall(name)))


def cluster_of(folder: DataFolder) -> Cluster:
    """The cluster of a data folder, with its place decided."""
    account = account_for_postgres()
    place = choose_place(folder, binaries.find_postgres(), account)
    return Cluster(
        binaries=place.binaries,
        home=place.home,
        port=port_of(folder, "postgres_port"),
        superuser_password=folder.secret("postgres_superuser"),
        owner_password=folder.secret("postgres_owner"),
        account=account,
    )


def start_postgres(folder: DataFolder, supervisor: Supervisor) -> str:
    """Make the cluster where needed, start it, make the database."""
    cluster = cluster_of(folder)
    if cluster.initialise():
        supervisor.say(f"postgres   new cluster of PostgreSQL {cluster.binaries.major} in {cluster.data}")
    child = supervisor.start(postgres_service(cluster))
    supervisor.wait_until(cluster.is_ready, child, START_SECONDS)
    cluster.ensure_database()
    return cluster.url


def postgres_service(cluster: Cluster) -> Service:
    """The row of the process table."""
    return Service(
        "postgres",
        cluster.argv(),
        POSTGRES,
        env=cluster.env,
        account=cluster.account,
        stop_signal=STOP_SIGNAL,
        stop_seconds=30.0,
        death_signal=STOP_SIGNAL,
        before_start=cluster.clear_stale_pid,
    )


def start_valkey(folder: DataFolder, supervisor: Supervisor) -> str:
    """Write its configuration and start it."""
    server = Valkey(
        program=binaries.find_valkey(),
        home=folder.path,
        port=port_of(folder, "valkey_port"),
        password=folder.secret("valkey"),
    )
    server.initialise()
    child = supervisor.start(valkey_service(server))
    supervisor.wait_until(server.is_ready, child, START_SECONDS)
    return server.url


def valkey_service(server: Valkey) -> Service:
    """The row of the process table."""
    # SIGTERM at the runner's death lets it write the rest of its file; it has no way to hang there.
    env = {"PATH": "/usr/bin:/bin", "LC_ALL": "C"}
    return Service("valkey", server.argv(), VALKEY, env=env, death_signal=signal.SIGTERM)


def check_database(url: str) -> None:
    """Connect once, so that a wrong address is said before anything starts."""
    try:
        psycopg.connect(url, connect_timeout=5).close()
    except psycopg.Error as error:
        raise Unreachable(f"DATABASE_URL is set, but its server does not accept us: {error}".strip()) from None


def check_redis(url: str) -> None:
    """Ping once, as above."""
    try:
        with redis.Redis.from_url(url, socket_connect_timeout=5, socket_timeout=5) as client:
            client.ping()
    except (redis.RedisError, ValueError) as error:
        raise Unreachable(f"REDIS_URL is set, but its server does not accept us: {error}") from None
