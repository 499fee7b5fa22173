"""The command tree, and the one place where errors become a line on stderr and an exit code."""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer
from typer.exceptions import Abort, TyperException

from synora.cli.atari_100k import atari_100k
from synora.cli.benchmark import benchmark
from synora.cli.collect import collect
from synora.cli.stopping import kept_handlers
from synora.cli.sweep import sweep
from synora.cli.train import train
from synora.core.errors import EXIT_FAILED, EXIT_OK, FileError, SynoraError, UsageError

EXIT_INTERRUPTED = 130

app = typer.Typer(
    name="synora",
    help="Train, benchmark and measure world-model reinforcement-learning agents.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.command("atari-100k")(atari_100k)
app.command("benchmark")(benchmark)
app.command("collect")(collect)
app.command("sweep")(sweep)
app.command("train")(train)


@app.command("run-job")
def run_job(
    plan: Annotated[Path, typer.Option("--plan", help="Plan file (JSON) that holds the job.")],
    index: Annotated[int, typer.Option("--index", help="Place of the job in the plan, from 0.")],
    out_dir: Annotated[
        Path | None, typer.Option("--out-dir", "--out_dir", help="Where jobs/ID.json goes; default: the plan's folder.")
    ] = None,
    attempt: Annotated[int, typer.Option("--attempt", min=1, help="Recorded in the result.")] = 1,
) -> int:
    """Run one job of a plan in this process and write its result; every executor ends here."""
    from synora.batch.execute import execute
    from synora.batch.plan import Plan, result_path
    from synora.core.files import require_writable_folder

    try:
        job = Plan.read(plan).job(index)
    except FileError as error:
        raise UsageError(str(error)) from error
    folder = require_writable_folder(out_dir if out_dir is not None else plan.parent)
    result = execute(job, folder, attempt=attempt, report=lambda phase: print(f"{job.name}: {phase}", file=sys.stderr))
    print(f"{result.status}: {result_path(folder, job)}")
    if result.error is not None:
        print(f"synora: {job.name} {result.status}: {result.error.message}", file=sys.stderr)
    return EXIT_OK if result.status in {"ok", "skipped"} else EXIT_FAILED


@app.command("doctor")
def doctor(
    json_output: Annotated[bool, typer.Option("--json", help="Print one JSON object instead of lines.")] = False,
    out_dir: Annotated[
        Path, typer.Option("--out-dir", "--out_dir", help="Results folder whose writability is checked.")
    ] = Path("results"),
) -> int:
    """Check this machine: torch and devices, Atari, bsuite, video, display, SLURM, containers, results folder."""
    from synora.cli.doctor import doctor as check

    return check(json_output, out_dir)


envs = typer.Typer(help="Environments, and the rules they run under.", no_args_is_help=True)
app.add_typer(envs, name="envs")


@envs.command("list")
def list_envs(
    backend: Annotated[
        str | None, typer.Option("--backend", "--env-backend", metavar="ale|bsuite|gym", help="Only this one.")
    ] = None,
) -> int:
    """Print every environment that can be made here, one a line."""
    from synora.cli.envs import list_envs as show

    return show(backend)


@envs.command("describe")
def describe_env(
    name: Annotated[str, typer.Argument(help="A protocol (atari-100k) or an environment in any spelling.")],
    train_rules: Annotated[bool, typer.Option("--train", help="The training variant, not the evaluation one.")] = False,
    json_output: Annotated[bool, typer.Option("--json", help="Print one JSON object instead of lines.")] = False,
) -> int:
    """Print the rules of a protocol, and its fingerprint."""
    from synora.cli.envs import describe

    return describe(name, train=train_rules, json_output=json_output)


def _print_version(wanted: bool) -> None:
    if wanted:
        from synora import __version__

        print(f"synora {__version__}")
        raise typer.Exit


@app.callback()
def options(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    """Train, benchmark and measure world-model reinforcement-learning agents."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit code: 0 done, 1 failed work, 2 bad usage, 130 interrupted.

    Args:
        arguments: without the program's name; default `sys.argv[1:]`.
    """
    given = list(sys.argv[1:] if arguments is None else arguments)
    _prepare_streams()
    try:
        _require_folders(given)
        with kept_handlers():
            code = app(given, prog_name="synora", standalone_mode=False)
        if sys.stdout is not None:  # closed by the caller: `>&-`
            sys.stdout.flush()
        if code == EXIT_INTERRUPTED:  # typer turns Ctrl-C into this code, without a word
            _complain("interrupted.")
    except TyperException as error:
        if error.format_message():  # a bare `synora` has shown its help already
            _complain(error.format_message())
        return error.exit_code
    except SynoraError as error:
        _complain(str(error))
        return error.exit_code
    except Abort:
        _complain("interrupted.")
        return EXIT_INTERRUPTED
    except SystemExit as leaving:
        if not isinstance(leaving.__context__, BrokenPipeError):
            raise
        return EXIT_OK  # typer's answer to a reader (`| head`) that has left
    except OSError as error:
        if error.filename is not None:  # not about our own output: a defect, whose traceback we want
            raise
        # The reader (`| head`) has left, or the disk behind a redirection is full; the interpreter would say so again.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        if isinstance(error, BrokenPipeError):
            return EXIT_OK
        _complain(f"cannot write the output: {error.strerror}.")
        return EXIT_FAILED
    return int(code or EXIT_OK)


def _prepare_streams() -> None:
    """Make printing safe: a closed stderr (`2>&-`) takes what it is given, and a narrow encoding escapes."""
    if sys.stderr is None:
        sys.stderr = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115 - for as long as the process lives
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


def _require_folders(arguments: Sequence[str]) -> None:
    """Refuse an empty output folder, which is an unset variable and would mean the current one.

    Raises:
        UsageError: there is one.
    """
    for index, argument in enumerate(arguments):
        flag, separator, value = argument.partition("=")
        if flag in {"--out-dir", "--out_dir"} and not (
            value if separator else "".join(arguments[index + 1 : index + 2])
        ):
            raise UsageError(f"{flag} is empty; name a folder ('.' is the current one).")


def _complain(message: str) -> None:
    text = " ".join(message.split()).replace("Value error, ", "")  # pydantic's prefix, through typer
    print(f"synora: error: {text}", file=sys.stderr)
