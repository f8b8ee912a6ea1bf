"""The command line: wiring and printing only. Heavy imports wait until a command needs them."""

import signal
import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from steelyard import cli_sandbox, cli_suite
from steelyard.errors import RequestError, SteelyardError

if TYPE_CHECKING:
    from rich.console import Console

    from steelyard.run.display import LiveDisplay
    from steelyard.run.dpo import DpoResult
    from steelyard.run.loop import RunResult
    from steelyard.run.reward_model import RewardModelResult

INTERRUPTED = 130
"""Exit code after Ctrl-C, as shells use it."""

app = typer.Typer(
    name="steelyard",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    help="Post-train language models with verifiable rewards, and account for every update.",
    epilog="Start with `steelyard train booking`, or with `steelyard init mine` for your own prompts and reward.",
)

app.add_typer(cli_sandbox.app, name="sandbox")
app.add_typer(cli_suite.app, name="suite")

RecipeArgument = Annotated[str, typer.Argument(metavar="RECIPE", help="A TOML file, or the name of a shipped recipe.")]
Overrides = Annotated[list[str] | None, typer.Argument(metavar="[KEY.PATH=VALUE]...", help="Values over the recipe's.")]
RunArgument = Annotated[Path, typer.Argument(metavar="RUN", help="A run directory.")]


def main() -> None:
    """Run the command line; every error on purpose is one message and an exit code."""
    try:
        app()
    except SteelyardError as error:
        typer.echo(f"steelyard: {error}", err=True)
        sys.exit(error.exit_code)
    except KeyboardInterrupt:
        typer.echo("steelyard: stopped.", err=True)
        sys.exit(INTERRUPTED)


@app.command()
def init(
    directory: Annotated[Path, typer.Argument(help="Where to write; must not hold these files yet.")] = Path(),
) -> None:
    """Write a starting recipe, a reward function and a data file of your own.

    \b
    Examples:
      steelyard init mine
      cd mine && steelyard train recipe.toml
    """
    from steelyard.run.starter import write_starter

    for path in write_starter(directory):
        typer.echo(f"wrote {path}")
    typer.echo(
        f"Next: cd {directory} && steelyard train recipe.toml"
        if str(directory) != "."
        else "Next: steelyard train recipe.toml"
    )


@app.command()
def train(
    recipe: RecipeArgument,
    overrides: Overrides = None,
    unconfined: Annotated[bool, typer.Option(help="Run programs without walls; recorded on the card.")] = False,
) -> None:
    """Train a policy by a recipe. Ctrl-C ends after the running update and keeps everything.

    \b
    Examples:
      steelyard train booking
      steelyard train recipes/booking.toml run.seed=1 objective.variant=dr_grpo
      steelyard train recipes/booking.toml optimizer.lr=0 run.dir=runs/control
    """
    from rich.console import Console

    from steelyard.config import load
    from steelyard.run.recipe import Recipe
    from steelyard.run.recipes import find_recipe

    path = find_recipe(recipe)
    loaded = load(path, Recipe, overrides or [])
    console = Console(stderr=True)
    with console.status("importing torch and transformers"):
        from steelyard.run.closing import closing_table, where_to_look
        from steelyard.run.display import LiveDisplay
        from steelyard.run.loop import train as run_training
    with LiveDisplay(console) as display:
        stop = _stop_on_ctrl_c(console, display)
        result = run_training(loaded, name=path.stem, reporter=display, stop=stop, unconfined=unconfined)
    console.print(closing_table(result))
    console.print("\n".join(where_to_look(result)), highlight=False, markup=False, soft_wrap=True)
    _end(result)


def _end(result: "RunResult | DpoResult | RewardModelResult") -> None:
    typer.echo(str(result.directory))
    if not result.finished:
        raise typer.Exit(INTERRUPTED)


def _stop_on_ctrl_c(console: "Console", display: "LiveDisplay") -> threading.Event:
    """Before the run directory exists Ctrl-C ends at once; then the first asks for an end after the running update."""
    stop = threading.Event()

    def handler(_number: int, _frame: object) -> None:
        if stop.is_set() or not display.is_running:
            raise KeyboardInterrupt
        stop.set()
        console.print("ending after the running step; press Ctrl-C again to end at once", style="yellow")

    signal.signal(signal.SIGINT, handler)
    return stop


@app.command()
def sft(recipe: RecipeArgument, overrides: Overrides = None) -> None:
    """Warm up a small model of your own by supervised training; a finished one is reused.

    \b
    Examples:
      steelyard sft booking-sft
      steelyard sft recipes/booking-sft.toml sft.steps=100
    """
    from rich.console import Console

    from steelyard.config import load
    from steelyard.run.recipes import find_recipe
    from steelyard.run.sft_recipe import SftRecipe

    loaded = load(find_recipe(recipe), SftRecipe, overrides or [])
    console = Console(stderr=True)
    with console.status("importing torch and transformers"):
        from steelyard.run.display import sft_display
        from steelyard.run.sft import sft as warm_up
    with sft_display(console) as progress:
        result = warm_up(loaded, progress=progress)
    if result.cached:
        console.print("reused: this recipe was trained before", highlight=False)
    else:
        console.print(f"{result.steps} steps in {result.seconds:.0f} s, last loss {result.loss:.3f}", highlight=False)
    typer.echo(str(result.directory))


@app.command()
def dpo(recipe: RecipeArgument, overrides: Overrides = None) -> None:
    """Train a policy on preference pairs, from a file or from a run. Ctrl-C keeps what is done.

    \b
    Examples:
      steelyard dpo recipes/booking-dpo.toml
      steelyard dpo booking-dpo pairs.ledger=runs/booking-s0 dpo.beta=0.3
    """
    from rich.console import Console

    from steelyard.config import load
    from steelyard.run.dpo_recipe import DpoRecipe
    from steelyard.run.recipes import find_recipe

    path = find_recipe(recipe)
    loaded = load(path, DpoRecipe, overrides or [])
    console = Console(stderr=True)
    with console.status("importing torch and transformers"):
        from steelyard.run.closing import dpo_table
        from steelyard.run.display import LiveDisplay
        from steelyard.run.dpo import dpo as run_dpo
    with LiveDisplay(console) as display:
        stop = _stop_on_ctrl_c(console, display)
        result = run_dpo(loaded, name=path.stem, reporter=display, stop=stop)
    console.print(dpo_table(result))
    _end(result)


@app.command()
def reward_model(recipe: RecipeArgument, overrides: Overrides = None) -> None:
    """Train a reward model on preference pairs; `reward.model` of a training recipe names it. Ctrl-C keeps what is done.

    \b
    Examples:
      steelyard reward-model booking-reward-model
      steelyard reward-model recipes/booking-reward-model.toml reward_model.members=3
      steelyard train booking reward.model=runs/booking-reward-model-s0
    """
    from rich.console import Console

    from steelyard.config import load
    from steelyard.run.recipes import find_recipe
    from steelyard.run.reward_model_recipe import RewardModelRecipe

    path = find_recipe(recipe)
    loaded = load(path, RewardModelRecipe, overrides or [])
    console = Console(stderr=True)
    with console.status("importing torch and transformers"):
        from steelyard.run.closing import reward_model_table
        from steelyard.run.display import LiveDisplay
        from steelyard.run.reward_model import reward_model as run_reward_model
    with LiveDisplay(console) as display:
        stop = _stop_on_ctrl_c(console, display)
        result = run_reward_model(loaded, name=path.stem, reporter=display, stop=stop)
    console.print(reward_model_table(result))
    _end(result)


@app.command()
def explain(
    recipe: Annotated[str, typer.Argument(metavar="RECIPE", help="A recipe; with --from, a file of that trainer.")],
    overrides: Overrides = None,
    peer: Annotated[str | None, typer.Option("--from", help="trl or verl: read its configuration.")] = None,
) -> None:
    """Print the objective that a recipe, or another trainer's configuration, really optimises.

    Formula, denominators, masks and traps; of a recipe also what other trainers call each choice. --from reads YAML,
    JSON, or the shell script that starts the training.

    \b
    Examples:
      steelyard explain booking
      steelyard explain recipes/booking.toml objective.variant=dapo
      steelyard explain --from trl grpo.yaml
      steelyard explain --from verl run_qwen.sh
    """
    from steelyard.config import load
    from steelyard.run.explain import explain as text_of
    from steelyard.run.explain import explain_peer
    from steelyard.run.recipe import Recipe
    from steelyard.run.recipes import find_recipe

    if peer is None:
        typer.echo(text_of(load(find_recipe(recipe), Recipe, overrides or [])))
        return
    if overrides:
        raise RequestError(f"--from {peer} reads one file; {overrides[0]!r} is no part of it. Change the file.")
    typer.echo(explain_peer(peer, Path(recipe)))


@app.command()
def why(
    run: RunArgument,
    update: Annotated[int | None, typer.Option("--update", "-u", help="One update; without it the whole run.")] = None,
) -> None:
    """Say in words and numbers what an update did, and why.

    \b
    Examples:
      steelyard why runs/booking-s0
      steelyard why runs/booking-s0 --update 7
    """
    from steelyard.audit.why import why_run, why_update
    from steelyard.ledger.reader import LedgerReader
    from steelyard.run.directory import ledger_of

    with LedgerReader(ledger_of(run)) as reader:
        typer.echo(why_run(reader) if update is None else why_update(reader, update))


@app.command()
def card(
    run: RunArgument,
    json: Annotated[bool, typer.Option("--json", help="One JSON document.")] = False,
) -> None:
    """Print the run card: everything needed to reconstruct the run.

    \b
    Examples:
      steelyard card runs/booking-s0
      steelyard card runs/booking-s0 --json
    """
    from json import dumps

    from steelyard.ledger.card import card as read_card
    from steelyard.ledger.card import card_text
    from steelyard.ledger.reader import LedgerReader
    from steelyard.run.directory import ledger_of

    with LedgerReader(ledger_of(run)) as reader:
        found = read_card(reader)
    typer.echo(dumps(found, indent=2, ensure_ascii=False) if json else card_text(found))


@app.command()
def export(
    run: RunArgument,
    to: Annotated[Path, typer.Option("--to", help="A directory that does not exist yet.")],
    form: Annotated[str, typer.Option("--format", help="parquet or csv.")] = "parquet",
    overwrite: Annotated[bool, typer.Option(help="Replace files in the directory.")] = False,
) -> None:
    """Write the ledger as Parquet or CSV.

    \b
    Examples:
      steelyard export runs/booking-s0 --to out
      steelyard export runs/booking-s0 --to out --format csv
    """
    from steelyard.ledger.export import export as write
    from steelyard.run.directory import ledger_of

    if form not in ("parquet", "csv"):
        raise RequestError(f"--format {form!r} is unknown; choose parquet or csv.")
    for path in write(ledger_of(run), to, form, overwrite=overwrite):
        typer.echo(str(path))
