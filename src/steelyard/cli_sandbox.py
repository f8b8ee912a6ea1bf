"""`steelyard sandbox`: what the walls of this machine are worth. Wiring and printing only."""

from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

    from steelyard.verify.sandbox.doctor import Diagnosis
    from steelyard.verify.sandbox.records import Wall

app = typer.Typer(
    no_args_is_help=True,
    rich_markup_mode=None,
    help="Look at the sandbox that runs model-written programs.",
    epilog="Start with `steelyard sandbox doctor`.",
)


@app.callback()
def sandbox() -> None:
    """Look at the sandbox that runs model-written programs."""


@app.command()
def doctor(
    attacks: Annotated[bool, typer.Option(help="Run the attack table, about ten seconds.")] = True,
    seconds: Annotated[float, typer.Option(min=0.1, max=60.0, help="How long each speed is measured.")] = 3.0,
    workers: Annotated[int, typer.Option(min=1, help="Attacks at a time.")] = 2,
    json: Annotated[bool, typer.Option("--json", help="One JSON document in place of the tables.")] = False,
) -> None:
    """Say which walls stand here, run the attack table against them, and measure the speed.

    Leaves with 0 when every attack was stopped, with 1 when one got through, with 2 when no program can be run here.

    \b
    Examples:
      steelyard sandbox doctor
      steelyard sandbox doctor --no-attacks
      steelyard sandbox doctor --json
    """
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    from steelyard.verify.sandbox.doctor import examine

    console = Console(stderr=True)
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console, transient=True) as progress:
        bar = progress.add_task("attacks", total=None)
        found = examine(
            attacks=attacks,
            seconds=seconds,
            workers=workers,
            done=lambda count, of: progress.update(bar, completed=count, total=of),
        )
    if json:
        from json import dumps

        typer.echo(dumps(_document(found), indent=2, ensure_ascii=False))
    else:
        _print(Console(highlight=False, soft_wrap=False), found)
    if found.refusal is not None:
        raise found.refusal
    raise typer.Exit(1 if found.through else 0)


def _print(console: "Console", found: "Diagnosis") -> None:
    from steelyard.verify.sandbox.doctor import LEVELS

    console.print(f"Level {found.level}: {LEVELS[found.level]}.\n")
    console.print(_walls(found))
    if found.findings:
        console.print(_attacks(found))
    for finding in found.through:
        console.print(f"GOT THROUGH  {finding.attack.name}: {finding.status}; {finding.detail}", markup=False)
    if found.skipped:
        console.print(f"n/a on this kind of machine: {', '.join(attack.name for attack in found.skipped)}")
    if found.speed is not None:
        console.print(
            f"One worker: {found.speed.programs:.0f} programs a second with 57 inputs each in one process, "
            f"{57 * found.speed.programs:.0f} inputs a second; {found.speed.inputs:.0f} inputs a second with a process each."
        )


def _walls(found: "Diagnosis") -> "Table":
    from rich.table import Table

    from steelyard.verify.sandbox.doctor import STOPS

    table = Table(title="Walls", title_justify="left", box=None, pad_edge=False)
    for heading in ("wall", "stands", "what it stops", "why not, and the fix"):
        table.add_column(heading, overflow="fold")
    for wall in found.walls:
        table.add_row(wall.name, "yes" if wall.stands else "no", STOPS[wall.name], _why(wall))
    return table


def _why(wall: "Wall") -> str:
    if wall.stands:
        return "" if wall.required else "(can be done without)"
    return f"{wall.why}. {wall.fix}".rstrip(". ") + ("" if wall.required else " (can be done without)")


def _attacks(found: "Diagnosis") -> "Table":
    from rich.table import Table

    table = Table(title="\nAttacks", title_justify="left", box=None, pad_edge=False)
    for heading in ("family", "tried", "stopped"):
        table.add_column(heading)
    for family in dict.fromkeys(finding.attack.family for finding in found.findings):
        rows = [finding for finding in found.findings if finding.attack.family == family]
        table.add_row(family, str(len(rows)), str(sum(finding.held for finding in rows)))
    table.add_row("all", str(len(found.findings)), str(len(found.findings) - len(found.through)))
    return table


def _document(found: "Diagnosis") -> dict[str, object]:
    from dataclasses import asdict

    return {
        "level": found.level,
        "walls": [asdict(wall) for wall in found.walls],
        "attacks": [
            {
                "name": finding.attack.name,
                "family": finding.attack.family,
                "guards": list(finding.attack.guards),
                "status": finding.status.value,
                "held": finding.held,
                "detail": finding.detail,
            }
            for finding in found.findings
        ],
        "not_applicable": [attack.name for attack in found.skipped],
        "speed": None if found.speed is None else asdict(found.speed),
    }
