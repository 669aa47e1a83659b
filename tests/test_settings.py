"""Settings are read once from the environment, and everything that is wrong with them is said at once."""

import dataclasses
from typing import Any

import pytest

from shared.errors import SettingsError
from shared.settings import Settings

DEFAULTS = {setting.name: setting.default for setting in dataclasses.fields(Settings)} | {"provider_servers": {}}


def test_an_empty_environment_gives_the_defaults() -> None:
    assert dataclasses.asdict(Settings.from_environment({})) == DEFAULTS


def test_an_empty_variable_means_its_default() -> None:
    environment = {name.upper(): " " for name in DEFAULTS}
    assert dataclasses.asdict(Settings.from_environment(environment)) == DEFAULTS


def test_every_setting_says_what_it_means_and_has_its_unit_in_its_name() -> None:
    for setting in dataclasses.fields(Settings):
        assert setting.metadata["meaning"]
        if setting.type in (float, "float"):
            assert setting.name.endswith("_seconds")


@pytest.mark.parametrize(
    ("variable", "text", "value"),
    [
        ("REDIS_URL", "rediss://:secret@example.com:6380/1", "rediss://:secret@example.com:6380/1"),
        ("REDIS_URL", "unix:///run/redis.sock", "unix:///run/redis.sock"),
        ("REDIS_URL", "redis-cluster://a.example", "redis-cluster://a.example"),
        ("REDIS_URL", "rediss-cluster://u:p@a.example:1/0", "rediss-cluster://u:p@a.example:1/0"),
        ("CALLBACK_URL", "https://api.example.com/v1/", "https://api.example.com/v1/"),
        ("CALLBACK_SECRET", "ssm:/meanwhile/callback", "ssm:/meanwhile/callback"),
        ("CALLBACK_SECRET", "env:KEY", "env:KEY"),
        ("NOTIFY", "stepFunctionsToken, durableCallbackId", ("stepFunctionsToken", "durableCallbackId")),
        ("NOTIFY", ",", ()),
        ("REDIS_URL", "ssm:/meanwhile/redis-url", "ssm:/meanwhile/redis-url"),
        ("REDIS_URL", "secretsmanager:meanwhile#redis_url", "secretsmanager:meanwhile#redis_url"),
        ("TABLE_NAME", "stage.meanwhile-1_x", "stage.meanwhile-1_x"),
        ("QUEUE_PREFIX", "mw-stage", "mw-stage"),
        ("DEFAULT_PROVIDER", "coin", "coin"),
        ("PROVIDERS_DIR", "shared/providers", "shared/providers"),
        ("PROVIDER_SERVERS", "coin=http://a:1", {"coin": "http://a:1"}),
        ("PROVIDER_SERVERS", "a=http://x,b=https://y/z?q=1,", {"a": "http://x", "b": "https://y/z?q=1"}),
        ("PARALLEL_TASKS", "2", 2),
        ("PARALLEL_TASKS", " 200 ", 200),
        ("MAX_WORKERS", "1", 1),
        ("TICK_SECONDS", "0.5", 0.5),
        ("WINDOW_SECONDS", "800", 800),
        ("IDLE_SECONDS", "0", 0),
        ("ATTEMPT_SECONDS", "0.1", 0.1),
        ("FIRST_ANSWER_SECONDS", "0", 0),
        ("MAX_CRASHES", "2", 2),
        ("CONFIRM_SECONDS", "0", 0),
        ("RETENTION_SECONDS", "60", 60),
        ("SPILL_BUCKET", "stage-meanwhile-spill-1a2b", "stage-meanwhile-spill-1a2b"),
        ("SPILL_BYTES", "4096", 4096),
        ("SPILL_DAYS", "2", 2),
    ],
)
def test_a_sound_variable_is_taken(variable: str, text: str, value: Any) -> None:
    settings = Settings.from_environment({variable: text})
    assert dataclasses.asdict(settings) == DEFAULTS | {variable.lower(): value}


NO_URL = ("localhost:6379", "ssm:name", "http://example.com", "rediss://")
NO_REDIS = (
    *NO_URL,
    "redis://host:abc/0",
    "redis://host/zero",
    "redis://host/0?retries=7",
    "redis-cluster://host/1",
    "redis-cluster://",
    "unix-cluster:///run/redis.sock",
    "redis-clusters://host",
    "REDIS://host",
    "redis://a..b",
    f"redis://{64 * 'a'}.example.com",
    "redis://host/0?ssl_cert_reqs=none",
    "redis-cluster://host?ssl_check_hostname=false",
    "unix:///run/redis.sock?ssl_cert_reqs=none",
    "rediss://host/0?ssl_cert_reqs=never",
    "rediss://host/0?ssl_cert_reqs=",
)
NO_SERVERS = ("coin", "coin=ftp://a", "No Name=http://a", "coin=http://")


@pytest.mark.parametrize(
    ("variable", "text", "why"),
    [
        *(("REDIS_URL", url, "must be redis") for url in NO_REDIS),
        *(("PROVIDER_SERVERS", text, "must be name=url pairs") for text in NO_SERVERS),
        ("PROVIDERS_DIR", "no/such/directory", "must be a directory"),
        ("TABLE_NAME", "a b", "must be a DynamoDB table name"),
        ("QUEUE_PREFIX", "{queue}", "must be 1 to 128 characters without braces"),
        ("DEFAULT_PROVIDER", "No Name", "must be a provider name"),
        ("PARALLEL_TASKS", "0", "must be between 1 and 200"),
        ("PARALLEL_TASKS", "2.5", "must be a number"),
        ("MAX_WORKERS", "0", "must be between 1 and 100"),
        ("TICK_SECONDS", "five", "must be a number"),
        ("WINDOW_SECONDS", "nan", "must be between 1 and 800"),
        ("IDLE_SECONDS", "-1", "must be between 0 and 800"),
        ("ATTEMPT_SECONDS", "inf", "must be between 0.1 and 600"),
        ("FIRST_ANSWER_SECONDS", "21", "must be between 0 and 20"),
        ("MAX_CRASHES", "1", "must be between 2 and 100"),
        ("CONFIRM_SECONDS", "1e9", "must be between 0 and 86400"),
        ("RETENTION_SECONDS", "59", "must be between 60 and"),
        ("SPILL_BUCKET", "s3://bucket", "must be an S3 bucket name"),
        ("SPILL_BYTES", "4095", "must be between 4096 and"),
        ("SPILL_DAYS", "1", "must be between 2 and"),
    ],
)
def test_a_faulty_variable_is_named_with_the_reason(variable: str, text: str, why: str) -> None:
    with pytest.raises(SettingsError, match=f"wrong settings: {variable} {why}"):
        Settings.from_environment({variable: text})


def test_all_faults_stand_in_one_message() -> None:
    environment = {"TABLE_NAME": "?", "PARALLEL_TASKS": "many", "MAX_CRASHES": "3", "TICK_SECONDS": "0"}
    with pytest.raises(SettingsError) as caught:
        Settings.from_environment(environment)
    assert [str(caught.value).count(variable) for variable in environment] == [1, 1, 0, 1]


def test_a_message_does_not_give_away_the_password_in_a_faulty_redis_url() -> None:
    with pytest.raises(SettingsError, match="REDIS_URL") as caught:
        Settings.from_environment({"REDIS_URL": "http://user:hunter2@example.com"})
    assert "hunter2" not in str(caught.value)


def test_a_lease_outlasts_an_attempt_by_ten_seconds() -> None:
    assert Settings.from_environment({"ATTEMPT_SECONDS": "33"}).lease_seconds == 43


def test_objects_must_outlive_the_items_that_point_to_them_by_a_day() -> None:
    retention = {"RETENTION_SECONDS": str(30 * 86_400), "SPILL_BUCKET": "meanwhile-spill"}
    assert Settings.from_environment(retention | {"SPILL_DAYS": "31"}).spill_days == 31
    with pytest.raises(SettingsError, match="SPILL_DAYS must be a day or more beyond RETENTION_SECONDS"):
        Settings.from_environment(retention | {"SPILL_DAYS": "30"})
    assert Settings.from_environment({"RETENTION_SECONDS": str(100 * 86_400)}).spill_bucket == ""  # nothing spills


def test_settings_do_not_change() -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        Settings.from_environment({}).table_name = "other"  # type: ignore[misc]
