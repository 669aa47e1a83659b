"""Provider files in a directory of their own, served by the local stack."""

import io
import json
import os
import urllib.request

import pytest

from local.servers.redis_server import NoServerError
from local.stack import Stack
from tests.support.provider_tools import SECRET, Api, Write


@pytest.mark.server
@pytest.mark.slow
def test_the_local_stack_serves_files_of_a_directory_beside_the_shipped_ones(report: Write, api: Api) -> None:
    directory = report(polling={"minDelay": 0, "maxDelay": 0}).parent
    (directory / "report.vectors.json").write_text("[]", encoding="utf-8")
    (directory / "broken.json").write_text('{"servers": 5}', encoding="utf-8")
    api.retry_after = "0"
    settings = {"PROVIDERS_DIR": str(directory), "REPORT_KEY": SECRET, "IDLE_SECONDS": "1"}
    log = io.StringIO()
    try:
        stack = Stack(settings=settings, log=log)
    except NoServerError as error:
        if os.environ.get("CI"):
            raise
        pytest.skip(str(error))
    with stack:
        body = json.dumps({"provider": "report", "name": "a", "input": {"q": 1}}).encode()
        request = urllib.request.Request(f"{stack.url}/tasks", body, {"Content-Type": "application/json"})
        with urllib.request.urlopen(request) as answer:
            assert answer.status == 202
        stack.tick()
        with urllib.request.urlopen(f"{stack.url}/tasks/report/a") as answer:
            assert json.load(answer)["data"] == [1]
    assert "broken.json: $.servers: Expected `array`, got `int`" in log.getvalue()
    assert "report.vectors" not in log.getvalue()
