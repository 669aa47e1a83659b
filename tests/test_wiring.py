"""The parts are put together as the settings say, each once, and no neighbour can keep us waiting for long."""

import json
import logging
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeAlias

import boto3
import pytest
from moto import mock_aws
from redis import Redis

from shared import wiring
from shared.errors import QueueUnavailable, SecretUnavailable, SettingsError, StoreUnavailable
from shared.queue import Queue
from shared.queue.cluster import Cluster
from shared.task import Task
from tests.support.outage import Door
from tests.support.simulator import EXAMPLE

TASK = Task("example", "a")
Env: TypeAlias = Callable[[str, str], None]


def redis_of(queue: Queue) -> "Redis":
    client = queue._client
    assert isinstance(client, Redis)
    return client


@pytest.fixture
def env(monkeypatch: pytest.MonkeyPatch) -> Env:
    """Sets a variable of the environment."""
    return monkeypatch.setenv


@pytest.fixture
def door() -> Iterator[Callable[..., Door]]:
    """Opens doors."""
    doors: list[Door] = []

    def door(*, silent: bool) -> Door:
        doors.append(Door(silent=silent))
        return doors[-1]

    yield door
    for one in doors:
        one.close()


# --- settings


def test_settings_come_from_the_environment_and_are_read_once(env: Env) -> None:
    env("TABLE_NAME", "first")
    assert wiring.settings().table_name == "first"
    env("TABLE_NAME", "second")
    assert wiring.settings().table_name == "first"


MAKERS = [wiring.queue, wiring.store, wiring.worker, wiring.enqueuer, wiring.parts, wiring.reconciler]


@pytest.mark.parametrize("make", MAKERS, ids=lambda make: make.__name__)
def test_wrong_settings_are_told_whichever_part_is_made_first(env: Env, make: Callable[[], object]) -> None:
    env("PARALLEL_TASKS", "many")
    env("QUEUE_PREFIX", "{}")
    with pytest.raises(SettingsError, match=r"QUEUE_PREFIX .*; PARALLEL_TASKS "):
        make()


@pytest.mark.parametrize("make", [*MAKERS, wiring.receiver, wiring.notifier, wiring.logger])
def test_each_part_is_made_once(make: Callable[[], object]) -> None:
    assert make() is make()


def test_the_clock_tells_epoch_milliseconds() -> None:
    before = time.time_ns() // 1_000_000
    assert before <= wiring.clock() <= time.time_ns() // 1_000_000


def test_the_clock_is_corrected_by_what_the_store_hears(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wiring.store_clock(), "host", lambda: 1_750_000_300_000)
    assert wiring.store().table.clock is wiring.store_clock()
    wiring.store_clock().hear({"date": "Sun, 15 Jun 2025 15:06:40 GMT"}, 1_750_000_300_000)
    assert wiring.clock() == wiring.parts().clock() == 1_750_000_000_500


# --- Redis


def test_redis_is_reached_as_the_url_says_and_never_waited_for_longer_than_two_seconds(env: Env) -> None:
    env("REDIS_URL", "rediss://user:secret@redis.example.com:6380/3")
    env("QUEUE_PREFIX", "stage")
    options = redis_of(wiring.queue()).connection_pool.connection_kwargs
    assert (options["host"], options["port"], options["db"]) == ("redis.example.com", 6380, 3)
    assert (options["username"], options["password"]) == ("user", "secret")
    assert (options["socket_connect_timeout"], options["socket_timeout"]) == (1, 2)
    assert wiring.queue()._names("example")[1] == "{stage:example}:leases"


@pytest.mark.parametrize(
    ("url", "is_taken"),
    [
        ("rediss://a.example", True),
        ("rediss-cluster://a.example", True),
        ("rediss://a.example?ssl_cert_reqs=required&ssl_check_hostname=true&ssl_ca_certs=/etc/ssl/certs/ca.pem", True),
        ("redis://a.example", False),
        ("redis-cluster://a.example", False),
        ("unix:///run/redis.sock", False),
        ("rediss://a.example?ssl_cert_reqs=none", False),
        ("rediss-cluster://a.example?ssl_cert_reqs=optional", False),
        ("rediss://a.example?ssl_check_hostname=False", False),
        ("rediss://a.example?ssl_check_hostname=0", False),
    ],
)
def test_where_tls_is_required_redis_is_reached_over_tls_that_is_verified(env: Env, url: str, is_taken: bool) -> None:
    env("REDIS_URL", url)
    wiring.queue()
    env("REDIS_TLS", "required")
    wiring.queue.cache_clear()
    wiring.settings.cache_clear()
    if is_taken:
        wiring.queue()
    else:
        with pytest.raises(SettingsError, match="REDIS_URL must lead to a Redis over TLS"):
            wiring.queue()


@pytest.mark.parametrize(
    ("scheme", "connection"), [("redis-cluster", "Connection"), ("rediss-cluster", "SSLConnection")]
)
def test_a_cluster_is_waited_for_as_one_server_is(env: Env, scheme: str, connection: str) -> None:
    """C11."""
    env("REDIS_URL", f"{scheme}://user:secret@a.example:1")
    client: Any = wiring.queue()._client
    assert isinstance(client, Cluster)
    with pytest.raises(QueueUnavailable, match=r"Redis at a\.example:1"):
        wiring.queue().look([TASK])  # there is no such name
    known = client.startup_nodes[0].redis_connection.connection_pool
    options = known.connection_kwargs
    assert known.connection_class.__name__ == connection
    assert (options["username"], options["password"]) == ("user", "secret")
    assert (options["socket_connect_timeout"], options["socket_timeout"]) == (1, 2)


@pytest.mark.parametrize("setting", ["ssm:/meanwhile/cluster", "secretsmanager:cluster"])
def test_the_url_of_a_cluster_may_stand_there_too(mocked: None, env: Env, setting: str) -> None:
    """C11."""
    env("REDIS_URL", setting)
    client = wiring.queue()._client
    assert isinstance(client, Cluster)
    assert client.where == "cluster.example.com:6379"


@pytest.mark.parametrize(("silent", "knocks"), [(False, 2), (True, 1)])
def test_a_redis_that_closes_the_door_is_knocked_at_twice_for_one_call_and_one_that_says_nothing_once(
    env: Env, door: Callable[..., Door], silent: bool, knocks: int
) -> None:
    shut = door(silent=silent)
    env("REDIS_URL", f"redis://127.0.0.1:{shut.port}")
    redis_of(wiring.queue()).connection_pool.connection_kwargs["socket_timeout"] = 0.1  # this test need not wait
    with pytest.raises(QueueUnavailable):
        wiring.queue().look([TASK])
    assert shut.knocks == knocks


@pytest.fixture
def mocked() -> Iterator[None]:
    """moto's SSM and Secrets Manager with the URL in them."""
    with mock_aws():
        boto3.client("ssm").put_parameter(Name="/meanwhile/redis", Value="redis://ssm.example.com", Type="SecureString")
        secrets = boto3.client("secretsmanager")
        secrets.create_secret(Name="whole", SecretString=json.dumps({"url": "redis://keyed.example.com"}))
        url = "rediss-cluster://:word@cluster.example.com"
        boto3.client("ssm").put_parameter(Name="/meanwhile/cluster", Value=url, Type="SecureString")
        secrets.create_secret(Name="cluster", SecretString=url)
        secrets.create_secret(Name="other", SecretString="https://hunter2.example.com")
        yield


@pytest.mark.parametrize(
    ("reference", "host"),
    [("ssm:/meanwhile/redis", "ssm.example.com"), ("secretsmanager:whole#url", "keyed.example.com")],
)
def test_the_url_may_stand_in_a_parameter_or_a_secret(mocked: None, env: Env, reference: str, host: str) -> None:
    env("REDIS_URL", reference)
    assert redis_of(wiring.queue()).connection_pool.connection_kwargs["host"] == host


@pytest.mark.parametrize("reference", ["ssm:/nowhere", "secretsmanager:whole#nothing"])
def test_a_reference_that_leads_nowhere_is_named_and_no_value_is(mocked: None, env: Env, reference: str) -> None:
    env("REDIS_URL", reference)
    with pytest.raises(SecretUnavailable, match=reference.partition("#")[0]) as caught:
        wiring.queue()
    assert "example.com" not in str(caught.value)


def test_a_reference_to_something_else_is_a_faulty_setting_whose_value_is_not_told(mocked: None, env: Env) -> None:
    env("REDIS_URL", "secretsmanager:other")
    with pytest.raises(SettingsError, match="REDIS_URL: secretsmanager:other") as caught:
        wiring.queue()
    assert "hunter2" not in str(caught.value)


# --- DynamoDB

LONGEST_PAUSE_SECONDS = 1  # before botocore's first retry in standard mode


def test_a_call_to_dynamodb_ends_within_three_seconds() -> None:
    config: Any = wiring.dynamodb().meta.config
    attempts = config.retries["total_max_attempts"]
    assert config.retries["mode"] == "standard"
    for timeout in (config.connect_timeout, config.read_timeout):
        assert attempts * timeout + (attempts - 1) * LONGEST_PAUSE_SECONDS < 3


def test_each_attempt_in_flight_has_a_connection_to_dynamodb(env: Env) -> None:
    env("PARALLEL_TASKS", "50")
    config: Any = wiring.dynamodb().meta.config
    assert config.max_pool_connections >= 50


@pytest.mark.parametrize("silent", [False, True])
def test_a_dynamodb_that_does_not_answer_is_unavailable_after_two_tries(
    env: Env, door: Callable[..., Door], silent: bool
) -> None:
    shut = door(silent=silent)
    env("AWS_ENDPOINT_URL_DYNAMODB", f"http://127.0.0.1:{shut.port}")
    with pytest.raises(StoreUnavailable):
        wiring.store().get(TASK, 0)
    assert shut.knocks == 2


def test_the_store_keeps_items_in_the_table_and_for_as_long_as_the_settings_say(env: Env) -> None:
    env("TABLE_NAME", "stage-meanwhile")
    env("RETENTION_SECONDS", "60")
    store = wiring.store()
    assert (store.table.name, store.retention_seconds) == ("stage-meanwhile", 60)


# --- providers


@pytest.fixture
def folder(env: Env, tmp_path: Path) -> Path:
    """A further directory of provider files."""
    env("PROVIDERS_DIR", str(tmp_path))
    return tmp_path


def write(folder: Path, name: str, file: Any) -> None:
    (folder / name).write_text(file if isinstance(file, str) else json.dumps(file), encoding="utf-8")


def test_the_shipped_providers_are_there_without_any_setting() -> None:
    assert set(wiring.providers()) == {"example", "coin"}


def test_files_of_ones_own_are_added_and_win_over_shipped_ones(folder: Path) -> None:
    write(folder, "mine.json", EXAMPLE | {"freshness": 1})
    write(folder, "example.json", EXAMPLE | {"freshness": 2})
    write(folder, "notes.txt", "no provider file")
    assert set(wiring.providers()) == {"coin", "example", "mine"}
    assert [wiring.providers()[name].rules.freshness for name in ("mine", "example")] == [1, 2]


def test_a_servers_setting_replaces_the_first_server_of_its_provider_alone(folder: Path, env: Env) -> None:
    write(folder, "mine.json", EXAMPLE | {"servers": ["https://one.example.com", "https://two.example.com"]})
    env("PROVIDER_SERVERS", "mine=http://127.0.0.1:7,nobody=http://127.0.0.1:8")
    assert wiring.providers()["mine"].rules.servers == ("http://127.0.0.1:7", "https://two.example.com")
    assert wiring.providers()["coin"].rules.servers == ("http://127.0.0.1:9001",)


@pytest.mark.parametrize(
    ("name", "file", "said"),
    [
        ("broken.json", "{", "broken.json"),
        ("broken.json", EXAMPLE | {"colour": "blue"}, "broken.json"),
        ("No Name.json", EXAMPLE, "No Name.json"),
    ],
)
def test_a_faulty_file_is_reported_and_stops_no_other_provider(
    folder: Path, caplog: pytest.LogCaptureFixture, name: str, file: Any, said: str
) -> None:
    write(folder, name, file)
    write(folder, "mine.json", EXAMPLE)
    assert set(wiring.providers()) == {"coin", "example", "mine"}
    [line] = [line for line in caplog.records if line.levelno == logging.ERROR]
    assert (line.message, said in vars(line)["reason"]) == ("provider file faulty", True)


def test_conversations_beside_provider_files_are_no_provider_files(
    folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    write(folder, "mine.json", EXAMPLE)
    write(folder, "mine.vectors.json", [])
    assert set(wiring.providers()) == {"coin", "example", "mine"}
    assert caplog.records == []


def test_settings_that_name_a_provider_of_which_there_is_no_file_are_reported(
    env: Env, caplog: pytest.LogCaptureFixture
) -> None:
    env("DEFAULT_PROVIDER", "nobody")
    env("PROVIDER_SERVERS", "coin=http://127.0.0.1:7,none=http://127.0.0.1:8")
    assert set(wiring.providers()) == {"example", "coin"}
    said = [(line.message, vars(line)["reason"].partition(",")[0]) for line in caplog.records]
    names = ["DEFAULT_PROVIDER names nobody", "PROVIDER_SERVERS names none"]
    assert said == [("setting faulty", name) for name in names]


def test_process_and_reconcile_know_every_provider(folder: Path) -> None:
    write(folder, "mine.json", EXAMPLE)
    assert list(wiring.parts().providers) == ["coin", "example", "mine"]
    assert list(wiring.reconciler().rules) == ["coin", "example", "mine"]


# --- what the parts are given


def test_the_parts_have_what_the_settings_say(env: Env) -> None:
    env("ATTEMPT_SECONDS", "30")
    assert wiring.reconciler().lease_seconds == 40
    assert wiring.parts().settings is wiring.settings()


def test_all_parts_share_one_queue_one_store_and_one_worker() -> None:
    enqueuer, receiver, tick = wiring.enqueuer(), wiring.receiver(), wiring.tick(lambda: 60)
    assert enqueuer.parts is receiver.parts is tick.parts is wiring.parts()
    assert enqueuer.worker is receiver.worker is tick.worker is wiring.worker()
    assert (wiring.parts().queue, wiring.parts().store) == (wiring.queue(), wiring.store())


@pytest.mark.parametrize(("notify", "made"), [("stepFunctionsToken", 1), ("", 0)])
def test_a_batch_has_its_notifier_before_its_threads_start(env: Env, notify: str, made: int) -> None:
    env("NOTIFY", notify)
    wiring.enqueuer_for_threads()
    assert wiring.notifier.cache_info().currsize == made
