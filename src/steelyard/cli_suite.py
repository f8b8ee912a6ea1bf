"""`steelyard suite`: how strong a test suite is, and a stronger version of it. Wiring and printing only."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from steelyard.errors import RequestError

if TYPE_CHECKING:
    from steelyard.audit.strength import Subject
    from steelyard.audit.strength.programs import Progress
    from steelyard.audit.strength.repair import Repair
    from steelyard.verify.sandbox import Sandbox

app = typer.Typer(
    no_args_is_help=True,
    rich_markup_mode=None,
    help="Measure how strong a test suite is, and repair it.",
    epilog="Start with `steelyard suite strength booking:weak`.",
)
SuiteArgument = Annotated[
    str,
    typer.Argument(
        metavar="TASK:SUITE", help="booking:weak; a prompt id for tasks with a suite each; or TASK:FILE.json."
    ),
]
Seed = Annotated[int, typer.Option(min=0, help="Of the fresh inputs of the pool.")]
PoolSize = Annotated[int, typer.Option("--pool", min=0, help="Fresh inputs of the pool.")]
Workers = Annotated[int, typer.Option(min=1, help="Programs at a time.")]
Unconfined = Annotated[bool, typer.Option("--unconfined", help="Run programs without walls; stated in the report.")]


@app.command()
def strength(
    suite: SuiteArgument,
    run: Annotated[Path | None, typer.Option(metavar="RUN", help="A run whose completions are judged too.")] = None,
    fail_on: Annotated[
        str | None, typer.Option(metavar="survivor", help="Leave with 1 when there is a survivor.")
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="One JSON document in place of the text.")] = False,
    to: Annotated[Path | None, typer.Option(help="Write the JSON document to a file as well.")] = None,
    group_size: Annotated[int, typer.Option(min=1, help="G, for the share of constant groups.")] = 16,
    seed: Seed = 0,
    pool: PoolSize = 1200,
    workers: Workers = 2,
    unconfined: Unconfined = False,
) -> None:
    """Say which wrong programs a suite pays in full, each with a smallest witness and the test that catches it.

    \b
    Examples:
      steelyard suite strength booking:weak
      steelyard suite strength booking:reference --fail-on survivor
      steelyard suite strength booking:weak --run runs/booking-s0 --json
    """
    from json import dumps

    from steelyard.audit.strength import find_subject, measure_strength
    from steelyard.audit.strength.text import report_json, report_text

    if fail_on not in (None, "survivor"):
        raise RequestError(f"--fail-on {fail_on!r} is unknown; it takes survivor.")
    if to is not None and (to.exists() or not to.parent.is_dir()):
        raise RequestError(f"--to {to}: name a file that does not exist yet, in a directory that does.")
    subject = find_subject(suite)
    with _sandbox(subject, workers=workers, unconfined=unconfined) as sandbox, _bar() as progress:
        report = measure_strength(
            subject, sandbox, seed=seed, pool_size=pool, group_size=group_size, run=run, progress=progress
        )
    document = dumps(report_json(report), indent=2, ensure_ascii=True)
    if to is not None:
        _write(to, document + "\n")
    typer.echo(document if json else report_text(report), nl=json)
    if fail_on and report.survivors:
        raise typer.Exit(1)


@app.command()
def repair(
    suite: SuiteArgument,
    to: Annotated[Path, typer.Option(help="The JSON file to write; must not exist.")],
    tests: Annotated[int | None, typer.Option(help="Tests of the new version; default: as many as now.")] = None,
    seed: Seed = 0,
    pool: PoolSize = 1200,
    workers: Workers = 2,
    unconfined: Unconfined = False,
) -> None:
    """Exchange tests that add nothing for inputs that catch survivors, as a new version with its own hash.

    \b
    Examples:
      steelyard suite repair booking:weak --to weak-2.json
      steelyard train booking task.suite=weak-2.json
    """
    from steelyard.audit.strength import find_subject
    from steelyard.audit.strength.repair import repair_suite
    from steelyard.tasks.suite_files import write_suite

    subject = find_subject(suite)
    if to.exists() or to.suffix != ".json" or not to.parent.is_dir():
        raise RequestError(f"--to {to}: name a .json file that does not exist yet, in a directory that does.")
    with _sandbox(subject, workers=workers, unconfined=unconfined) as sandbox, _bar() as progress:
        found = repair_suite(subject, sandbox, tests=tests, seed=seed, pool_size=pool, progress=progress)
    origin = {"suite": subject.name, "version": subject.suite.version, "hash": subject.suite.hash, "seed": seed}
    made = {"repaired from": origin, "added": found.added, "removed": found.removed}
    write_suite(found.suite, to, prompt_id=subject.prompt_id, made=made)
    if subject.probe is None:
        typer.echo("the new inputs are changed copies of old ones: see that the prompt allows each", err=True)
    typer.echo(_repair_text(found), err=True)
    typer.echo(str(to))


def _sandbox(subject: "Subject", *, workers: int, unconfined: bool) -> "Sandbox":
    from steelyard.audit.strength import LIMITS
    from steelyard.verify.sandbox import Sandbox

    return Sandbox(workers=workers, limits=LIMITS, unconfined=unconfined, packages=subject.packages)


def _repair_text(found: "Repair") -> str:
    lines = [
        f"{found.suite.task}:{found.suite.name} version {found.suite.version}, {len(found.suite.cases)} tests, {found.suite.hash}",
        f"{len(found.added)} tests added, {len(found.removed)} given up",
        f"wrong programs paid in full: {len(found.before)} before, {len(found.after)} now",
    ]
    if found.after:
        lines.append(f"still paid: {', '.join(found.after)}. Give more room with --tests.")
    if found.lost:
        lines.append(f"caught before and not now: {', '.join(found.lost)}. Give more room with --tests.")
    return "\n".join(lines)


def _write(path: Path, text: str) -> None:
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise RequestError(
            f"--to {path} cannot be written ({error}). Name a file in a directory that exists."
        ) from error


@contextmanager
def _bar() -> "Iterator[Progress]":
    """A progress bar on stderr, on a terminal."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    console = Console(stderr=True)
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as bar:
        task = bar.add_task("", total=None)

        def progress(what: str, done: int, total: int) -> None:
            if what:
                bar.update(task, description=what, completed=done, total=total)

        yield progress
