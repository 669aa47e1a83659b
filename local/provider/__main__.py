"""The tools of whoever writes a provider file.

python -m local.provider check FILE…       is it sound, and what will it do?
python -m local.provider try FILE …        one task against the real provider, every request and answer shown
python -m local.provider replay VECTORS…   whole conversations against the real client
"""

import argparse
import json
import logging
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from local.provider.check import check
from local.provider.replay import Conversation, VectorError, conversations
from local.provider.trial import Surroundings, Trial
from shared.codec import Json, dumps, loads
from shared.errors import BadRequest, SettingsError
from shared.outcome import Completed, Outcome
from shared.provider.credentials.credentials import ReadSecret
from shared.provider.language.rules import Rules
from shared.settings import Settings
from shared.task import Task


def main(arguments: Sequence[str] | None = None) -> int:
    """0 if all is well, 1 if a file is faulty, a conversation differs or a task fails, 2 if the call is wrong."""
    chosen = _parser().parse_args(arguments)
    try:
        settings = Settings.from_environment(os.environ)
    except SettingsError as error:
        print(error, file=sys.stderr)
        return 2
    try:
        status: int = chosen.run(chosen, settings)
    except BadRequest as error:
        print(error, file=sys.stderr)
        return 2
    return status


def run_check(chosen: argparse.Namespace, settings: Settings) -> int:
    """Check files."""
    reports = [check(path, settings) for path in _files(chosen.files)]
    for report in reports:
        print("\n".join(report.lines()))
    return 1 if any(report.faults for report in reports) else 0


def run_try(chosen: argparse.Namespace, settings: Settings) -> int:
    """Try a file."""
    report = check(chosen.file, settings)
    if report.faults:
        print("\n".join(report.lines()))
        return 1
    from shared import aws  # noqa: PLC0415 (boto3 and redis are not for check and replay)

    rules = Rules.load(chosen.file, settings.provider_servers.get(chosen.file.stem))
    task = Task.named(chosen.file.stem, chosen.name)
    trial = Trial(rules, task, chosen.input, Surroundings(read_secret=_quietly(aws.secret)))
    if unreadable := trial.unreadable():
        print("\n".join(f"a secret cannot be read here: {one}" for one in unreadable))
        return 1
    print(f"{task.id} with input {dumps(chosen.input)}; Ctrl-C ends it")
    if rules.calls_back:
        print("${callback.url} is null here: nobody could call back, so it is only asked")
    try:
        outcome: Outcome | None = trial.run(chosen.seconds or settings.attempt_seconds, chosen.max_wait)
    except KeyboardInterrupt:
        outcome = None
        print("\nended; a job that was begun goes on at the provider")
    if chosen.record:
        _record(chosen.record, trial, loads(chosen.file.read_bytes()))
    return 0 if isinstance(outcome, Completed) else 1


def _quietly(read: ReadSecret) -> ReadSecret:
    """The same reader without its log lines: what is wrong is told here."""

    def quiet(reference: str, *, fresh: bool) -> str:
        logging.disable()
        try:
            return read(reference, fresh=fresh)
        finally:
            logging.disable(logging.NOTSET)

    return quiet


def _record(path: Path, trial: Trial, config: Json) -> None:
    vector = trial.vector(config)
    path.write_text(json.dumps({"vectors": [vector]}, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    difference = trial.gap or Conversation(vector["id"], vector).difference()
    steps = f"{len(vector['steps'])} step{'' if len(vector['steps']) == 1 else 's'}"
    print(f"{path}: {steps}; {f'replay differs: {difference}' if difference else 'replay passes'}")


def run_replay(chosen: argparse.Namespace, _: Settings) -> int:
    """Play conversations."""
    passed = failed = 0
    for path in chosen.files:
        try:
            for conversation in conversations(path):
                difference = conversation.difference()
                print(f"{conversation.id}: {difference or 'passed'}", flush=True)
                passed, failed = passed + (difference is None), failed + (difference is not None)
        except VectorError as error:
            print(error)
            failed += 1
    print(f"{passed} passed, {failed} failed")
    return 1 if failed else 0


def _files(paths: Sequence[Path]) -> list[Path]:
    """The files, and the *.json files of directories."""
    return [file for path in paths for file in (sorted(path.glob("*.json")) if path.is_dir() else [path])]


def _json(text: str) -> Json:
    try:
        return loads(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"not JSON: {error}") from error


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m local.provider", description="Tools for provider files.")
    commands = parser.add_subparsers(required=True, metavar="check|try|replay")
    one = commands.add_parser("check", help="is a file sound, and what will it do?")
    one.add_argument("files", nargs="+", type=Path, metavar="FILE", help="a provider file, or a directory of them")
    one.set_defaults(run=run_check)
    one = commands.add_parser("try", help="run one task against the real provider, everything shown")
    one.add_argument("file", type=Path, metavar="FILE", help="a provider file")
    one.add_argument("--input", type=_json, default={}, metavar="JSON", help="the task's input (default {})")
    one.add_argument("--name", default="try", help="the task's name (default try)")
    one.add_argument("--seconds", type=float, help="the longest that an attempt may take (default ATTEMPT_SECONDS)")
    one.add_argument("--max-wait", type=float, metavar="SECONDS", help="wait no longer than this, whatever the delay")
    one.add_argument("--record", type=Path, metavar="VECTORS", help="write the conversation, masked, for replay")
    one.set_defaults(run=run_try)
    one = commands.add_parser("replay", help="play conversations against the real client")
    one.add_argument("files", nargs="+", type=Path, metavar="VECTORS", help="a file of conversations, or a directory")
    one.set_defaults(run=run_replay)
    return parser


if __name__ == "__main__":
    sys.exit(main())
