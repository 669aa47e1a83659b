"""The benchmarks run: at a tiny size, whatever their figures are."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from local import ROOT
from tests.support.redis_servers import server_or_skip


@pytest.mark.server
def test_the_benchmark_of_the_queue_prints_each_figure_with_a_bar_and_a_verdict() -> None:
    server_or_skip("valkey")
    size = ("--tasks", "200", "--rounds", "1", "--large")
    command = [sys.executable, "-m", "benchmarks.queue", "--server", "valkey", *size]
    run = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    lines = run.stdout.splitlines()[2:]
    said = [line for line in lines if re.search(r" \d+\.\d\d .*[≤≥] [\d.]+ +(ok|MISSED)", line)]
    assert len(said) == len(lines) - ("skipped: needs node and bullmq" in run.stdout) >= 18


@pytest.mark.slow
def test_the_benchmark_of_lateness_prints_each_load_and_a_verdict_where_there_are_bars() -> None:
    command = [sys.executable, "-m", "benchmarks.lateness", "--scale", "0.02"]
    run = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    lines = run.stdout.splitlines()
    loads = [line for line in lines if re.match(r"[\d,]+ a minute, (by schedule|delivery [\d.]+ s) ", line)]
    assert len(loads) == 9
    assert len(re.findall(r"\d\.\d\d ≤ [\d.]+ +(?:ok|MISSED)", run.stdout)) == 14


def test_the_benchmark_of_waiting_prints_what_a_wait_brings_and_costs_and_a_verdict() -> None:
    command = [sys.executable, "-m", "benchmarks.waiting", "--waits", "5"]
    run = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    told, without_redis = run.stdout.splitlines()[1:]
    assert re.match(r"for the end +\d\.\d\d ≤ 1 (ok|MISSED)( +\d+\.\d\d){4}$", told)
    assert re.match(r"without Redis( +\d+\.\d\d){5}$", without_redis)


@pytest.mark.slow
def test_the_benchmark_of_busy_providers_prints_each_load_with_few_workers_and_with_many() -> None:
    command = [sys.executable, "-m", "benchmarks.busy", "--providers", "3", "--scale", "0.2"]
    run = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    assert re.findall(r"(\d+) a minute, MaxWorkers (\d+) .*\d", run.stdout) == [
        ("18", "4"), ("18", "40"), ("90", "4"), ("90", "40"),
    ]  # fmt: skip


@pytest.mark.slow
@pytest.mark.server
def test_the_benchmark_of_the_process_function_prints_each_load_with_a_verdict() -> None:
    server_or_skip("valkey")
    command = [sys.executable, "-m", "benchmarks.process", "--server", "valkey", "--scale", "0.02"]
    run = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    lines = run.stdout.splitlines()[1:]
    assert len(lines) == 6
    assert len([line for line in lines if re.search(r" x ideal +≤ 1\.0\d +(ok|MISSED)", line)]) == 3
    assert len([line for line in lines if re.search(r" \d+\.\d\d CPU seconds", line)]) == 3


def test_the_page_of_results_is_made_from_what_was_kept() -> None:
    pages = [ROOT / "benchmarks" / name for name in ("results.md", "results.svg")]
    before = [page.read_text() for page in pages]
    subprocess.run([sys.executable, "-m", "benchmarks.results"], cwd=ROOT, check=True)
    assert [page.read_text() for page in pages] == before
    assert "| met |" in before[0]


@pytest.mark.server
@pytest.mark.slow
def test_the_benchmark_of_requests_prints_each_kind_and_what_a_new_task_calls() -> None:
    server_or_skip("valkey")
    command = [sys.executable, "-m", "benchmarks.enqueue", "--server", "valkey", "--rounds", "1", "--requests", "2"]
    run = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    assert len(re.findall(r" \d+\.\d\d CPU ms +≤ [\d.]+ +(?:ok|MISSED)", run.stdout)) == 4
    assert re.findall(r"(\d\.\d\d) +≤ \d +ok", run.stdout) == ["1.00", "2.00", "2.00"]


@pytest.mark.slow
def test_the_benchmark_of_a_cold_start_compares_the_artifact_with_its_libraries() -> None:
    command = [sys.executable, "-m", "benchmarks.cold_start", "--rounds", "1"]
    run = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    if "skipped" in run.stdout:
        pytest.skip("the artifact needs Python 3.13, which was not found")
    assert re.search(r"enqueue against its libraries +\d\.\d\d x +≤ 1\.15 +(ok|MISSED)", run.stdout)


@pytest.mark.server
@pytest.mark.slow
def test_the_benchmark_of_peers_measures_those_that_are_installed_beside_ours(tmp_path: Path) -> None:
    server_or_skip("valkey")
    python = tmp_path / "taskiq" / "bin" / "python"
    python.parent.mkdir(parents=True)
    (tmp_path / "taskiq" / "ready").touch()
    said = '{"wall": 1, "cpu": 0.01, "versions": {"taskiq": "0.0"}}'
    python.write_text(f"#!/bin/sh\necho '{said}'\n")
    python.chmod(0o755)
    size = ("--server", "valkey", "--rounds", "1", "--tasks", "10", "--environments", str(tmp_path))
    command = [sys.executable, "-m", "benchmarks.peers", *size]
    run = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    assert re.findall(r"^(\w+): skipped", run.stdout, re.MULTILINE) == ["arq", "dramatiq", "BullMQ"]
    assert re.search(r"taskiq: 1,000 tasks +1\.00 CPU seconds", run.stdout)
    assert re.search(r"ours against taskiq, by CPU +\d+\.\d\d x taskiq +≤ 1 +(ok|MISSED)", run.stdout)


@pytest.mark.parametrize("name", ["taskiq", "arq", "dramatiq"])
def test_what_a_peer_needs_is_pinned(name: str) -> None:
    lines = (ROOT / "benchmarks" / "peers" / f"{name}.txt").read_text().splitlines()
    assert any(line.startswith(f"{name}==") for line in lines)
    assert all(re.fullmatch(r"[\w.-]+==[\w.]+", line) for line in lines)
