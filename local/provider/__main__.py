"""The tools of whoever writes a provider file.

python -m local.provider check FILE…       is it sound, and what will it do?
python -m local.provider try FILE …        one task against the real provider, every request and reply shown
python -m local.provider replay VECTORS…   whole conversations against the real client
"""

import argparse
import io
import json
import logging
import math
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path

from local.output import until_unread
from local.provider.check import check
from local.provider.replay import Conversation, VectorError, conversation_files, conversations
from local.provider.trial import Surroundings, Trial
from shared.codec import Json, dumps, loads
from shared.errors import BadRequest, MeanwhileError, SettingsError
from shared.outcome import Completed, Outcome
from shared.provider.credentials.credentials import ReadSecret
from shared.provider.language.rules import CONVERSATIONS, Rules, provider_files
from shared.settings import Settings
from shared.task import Task


class CallError(MeanwhileError):
    """The command is not called as it should be; the message says what is wrong."""


def main(arguments: Sequence[str] | None = None) -> int:
    """0 if all is well, 1 if a file is faulty, a conversation differs or a task fails, 2 if the call is wrong."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):  # half a character in a file is shown as an escape
            stream.reconfigure(errors="backslashreplace")
    chosen = _parser().parse_args(arguments)
    try:
        status: int = chosen.run(chosen, Settings.from_environment(os.environ))
    except (SettingsError, BadRequest, CallError) as error:
        print(error, file=sys.stderr)
        return 2
    return status


def run_check(chosen: argparse.Namespace, settings: Settings) -> int:
    """Check files."""
    reports = [
        check(path, settings) for path in _files(chosen.files, provider_files, "provider file", "not provider files")
    ]
    for report in reports:
        print("\n".join(report.lines()))
    return 1 if any(report.faults for report in reports) else 0


def run_try(chosen: argparse.Namespace, settings: Settings) -> int:
    """Try a file."""
    input_, record = _input(chosen.input), chosen.record
    if record and (not record.name.endswith(CONVERSATIONS) or not record.parent.is_dir() or record.is_dir()):
        raise CallError(f"--record: {record} is not a file NAME{CONVERSATIONS} in a directory that exists")
    report = check(chosen.file, settings)
    if report.faults:
        print("\n".join(report.lines()))
        return 1
    from shared import aws  # noqa: PLC0415 (boto3 and redis are not for check and replay)

    config = loads(chosen.file.read_bytes())
    rules = Rules.from_json(config, settings.provider_servers.get(chosen.file.stem))
    task = Task.named(chosen.file.stem, chosen.name)
    trial = Trial(rules, task, input_, Surroundings(read_secret=_quietly(aws.secret)))
    if unreadable := trial.unreadable():
        print("\n".join(f"a secret cannot be read here: {one}" for one in unreadable))
        return 1
    print(f"{task.id} with input {dumps(input_)}; Ctrl-C ends it")
    if rules.calls_back:
        print("${callback.url} is null here: the provider could not call back, so it is only polled")
    outcome: Outcome | None = None
    try:
        outcome = trial.run(chosen.seconds or settings.attempt_seconds, chosen.max_wait)
    except KeyboardInterrupt:
        print("\nended; a job that was begun goes on at the provider")
    finally:
        if record:
            _record(record, trial, {**config, "servers": [*rules.servers]})
    return 0 if isinstance(outcome, Completed) else 1


def run_replay(chosen: argparse.Namespace, _: Settings) -> int:
    """Replay conversations."""
    passed = failed = 0
    named = f"NAME{CONVERSATIONS}"
    for path in _files(chosen.files, conversation_files, named, f"not named {named}"):
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


def _files(paths: Sequence[Path], chosen: Callable[[Path], list[Path]], kind: str, others: str) -> Iterator[Path]:
    """The files, and of directories those that are chosen; says which other *.json files there are."""
    for path in paths:
        if not path.is_dir():
            yield path
            continue
        taken = chosen(path)
        if not taken:
            raise CallError(f"{path}: has no {kind}")
        if skipped := sorted({file.name for file in path.glob("*.json")} - {file.name for file in taken}):
            print(f"{path}: skipped, {others}: {', '.join(skipped)}")
        yield from taken


def _input(text: str) -> dict[str, Json]:
    try:
        value = loads(text)
    except ValueError as error:
        raise CallError(f"--input: invalid JSON: {error}") from error
    if not isinstance(value, dict):
        raise CallError("--input: must be a JSON object, such as '{\"id\": 7}'")
    return value


def _seconds(text: str) -> float:
    with suppress(ValueError):
        if 0 <= (seconds := float(text)) < math.inf:
            return seconds
    raise argparse.ArgumentTypeError(f"{text} is not a number of seconds")


def _positive(text: str) -> float:
    if seconds := _seconds(text):
        return seconds
    raise argparse.ArgumentTypeError("an attempt of 0 seconds asks nothing")


def _quietly(read: ReadSecret) -> ReadSecret:
    """The same reader without its log lines: `try` itself says what is wrong."""

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
    difference = Conversation(vector["id"], vector).difference()
    steps = f"{len(vector['steps'])} step{'' if len(vector['steps']) == 1 else 's'}"
    print(f"{path}: {steps}; {f'replay differs: {difference}' if difference else 'replay passes'}")


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m local.provider",
        description="Tools for provider files. Each has its own --help.",
        epilog="exit code: 0 all is well, 1 what was looked at is not, 2 the call or a setting is wrong",
    )
    commands = parser.add_subparsers(required=True, metavar="check|try|replay")

    def command(name: str, run: Callable[..., int], about: str, example: str, bad: str) -> argparse.ArgumentParser:
        made = commands.add_parser(
            name,
            help=about,
            description=f"{about[0].upper()}{about[1:]}",
            formatter_class=argparse.RawDescriptionHelpFormatter,
            epilog=f"example:\n  {parser.prog} {name} {example}\n\n"
            f"exit code:\n  0 all is well\n  1 {bad}\n  2 the call or a setting is wrong",
        )
        made.set_defaults(run=run)
        return made

    one = command("check", run_check, "is a file sound, and what will it do?", "acme.json", "a file has a fault")
    one.add_argument("files", nargs="+", type=Path, metavar="FILE", help="a provider file, or a directory of them")
    one = command(
        "try",
        run_try,
        "run one task against the real provider, and show everything",
        """acme.json --input '{"id": "r-7"}' --record acme.vectors.json""",
        "the file has a fault, a secret cannot be read, or the task did not complete",
    )
    one.add_argument("file", type=Path, metavar="FILE", help="a provider file")
    one.add_argument("--input", default="{}", metavar="JSON", help="the task's input, an object (default {})")
    one.add_argument("--name", default="try", help="the task's name (default try)")
    one.add_argument("--seconds", type=_positive, help="the longest that an attempt may take (default ATTEMPT_SECONDS)")
    one.add_argument("--max-wait", type=_seconds, metavar="SECONDS", help="wait no longer than this between attempts")
    one.add_argument("--record", type=Path, metavar="VECTORS", help="write the conversation, masked, for replay")
    about = "replay conversations against the real client"
    one = command("replay", run_replay, about, "acme.vectors.json", "a conversation differs, or a file cannot be read")
    one.add_argument("files", nargs="+", type=Path, metavar="VECTORS", help="a file of conversations, or a directory")
    return parser


if __name__ == "__main__":
    sys.exit(until_unread(main))
