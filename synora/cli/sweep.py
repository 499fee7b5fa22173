"""`synora sweep`: plan the chosen bench cases, run them, print and write the reports."""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from synora.cli import sweep_options as options
from synora.cli.stopping import interrupt_on_stop
from synora.core.errors import EXIT_FAILED, EXIT_OK, FileError, UsageError

if TYPE_CHECKING:
    from synora.batch.local import LocalPool
    from synora.batch.plan import Plan
    from synora.cli.progress import PlanProgress
    from synora.compute.case import BenchCase
    from synora.core.result import Result

DEFAULT_OUT_DIR = Path("results/model_benchmarks")
MEMORY_SHARE = 0.9
PRELOAD = ("synora.compute.preload", "synora.batch.preload")


def sweep(
    preset: options.Preset = "tiny",
    models: options.Models = None,
    family: options.Family = None,
    everything: options.Everything = False,
    list_only: options.ListOnly = False,
    device: options.Device = "auto",
    dtype: options.DType = "fp32",
    no_backward: options.NoBackward = False,
    batch_size: options.BatchSize = None,
    seq_len: options.SeqLen = None,
    image_size: options.ImageSize = None,
    warmup: options.Warmup = None,
    iters: options.Iters = None,
    compile_module: options.Compile = False,
    tf32: options.TF32 = False,
    threads: options.Threads = None,
    seed: options.Seed = 0,
    case_timeout: options.CaseTimeout = 900.0,
    memory_limit: options.MemoryLimit = None,
    strict: options.Strict = False,
    out_dir: options.OutDir = DEFAULT_OUT_DIR,
    cases: options.CaseFile = None,
) -> int:
    """Measure parameters, FLOPs, latency, throughput and memory of models on synthetic tensors."""
    from synora.compute.catalog import load_cases, select_cases

    source = str(cases.resolve()) if cases is not None else None
    available = load_cases(source)
    wanted_models, wanted_families = _names(models, "--models"), _names(family, "--family")
    chosen = select_cases(available, models=wanted_models, families=wanted_families, heavy=everything)
    if list_only:
        print_cases(chosen if wanted_models or wanted_families else available)
        return EXIT_OK
    return run_sweep(
        chosen,
        out_dir=out_dir,
        device=device,
        case_timeout=case_timeout,
        memory_limit=memory_limit,
        strict=strict,
        preset=preset,
        overrides={"batch_size": batch_size, "seq_len": seq_len, "image_size": image_size},
        warmup=warmup,
        iters=iters,
        source=source,
        dtype=dtype,
        backward=not no_backward,
        compile=compile_module,
        tf32=tf32,
        threads=threads,
        seed=seed,
    )


def run_sweep(
    cases: Sequence[BenchCase],
    *,
    out_dir: Path,
    device: str,
    case_timeout: float,
    memory_limit: float | None,
    strict: bool,
    threads: int | None,
    **settings: Any,
) -> int:
    """Validate everything, then run the cases one after another and report; returns the exit code."""
    from synora.batch.local import LocalPool
    from synora.batch.plan import Plan
    from synora.compute.settings import make_jobs
    from synora.core.files import require_writable_folder
    from synora.core.machine import available_cpus, check_device_name, memory_limit_bytes

    settings["threads"] = threads or available_cpus()
    check_device_name(device)
    make_jobs(cases, device="cpu", **settings)  # every other value is checked before torch is loaded for the device
    require_writable_folder(out_dir)
    # Idle OpenMP threads that spin steal the time of the ones that work, on any shared machine.
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    pool = LocalPool(
        timeout=case_timeout,
        memory_limit=int((memory_limit * 2**30) if memory_limit is not None else MEMORY_SHARE * memory_limit_bytes()),
        preload=PRELOAD,
        on_event=lambda event: progress.phase(event.job.name, event.phase),
    )
    interrupt_on_stop()
    pool.warm_up()
    # While torch is loaded over there, what takes time here.
    from synora.batch.execute import software
    from synora.cli.progress import PlanProgress

    software()
    progress = PlanProgress(len(cases))
    with progress:
        progress.phase("torch", "loading")
        name, facts = _resolve_device(pool, device)
        plan = Plan.of(make_jobs(cases, device=name, **settings))
        results = _run(pool, plan, out_dir, _metadata(name, facts, settings), progress)
    _show(results, out_dir)
    failed = any(result.status not in {"ok", "skipped"} for result in results)
    measured = any(result.status == "ok" for result in results)
    return EXIT_FAILED if failed and (strict or not measured) else EXIT_OK


def _show(results: Sequence[Result], out_dir: Path) -> None:
    """Print the table and where the reports are, and on stderr why cases have no figures."""
    from synora.compute.report import REPORT_NAME, as_text

    print(as_text(results))
    print(f"\nReports: {out_dir.resolve() / REPORT_NAME}.{{json,csv,md,tex}}")
    for result in results:
        if result.error is not None:
            print(f"synora: {result.job.name} {result.status}: {result.error.message}", file=sys.stderr)


def print_cases(cases: Sequence[BenchCase]) -> None:
    """Print what would run, one line a case."""
    from tabulate import tabulate

    rows = [[case.name, case.family, "heavy (--all)" if case.heavy else "core", case.description] for case in cases]
    print(tabulate(rows, ("model", "family", "tier", "what is measured"), tablefmt="simple"))


def _run(pool: LocalPool, plan: Plan, out_dir: Path, metadata: dict[str, Any], progress: PlanProgress) -> list[Result]:
    """Run the plan; the reports are rewritten after every case, so that what is measured is never lost."""
    from synora.compute.report import as_text, write_reports

    run_dir = _new_run_dir(out_dir, metadata["started_at"])
    plan.write(run_dir / "plan.json")
    results: list[Result] = []
    try:
        for result in pool.run(plan, run_dir):
            results.append(result)
            progress.finished(result, _headline(result))
            write_reports(out_dir, results, metadata, complete=len(results) == len(plan.jobs))
        write_reports(run_dir, results, metadata, complete=True)
    except (FileError, KeyboardInterrupt):
        if results:  # what was measured is worth reading, whatever became of its files
            print(as_text(results))
        raise
    return results


def _headline(result: Result) -> str:
    """Return the figure of a finished case that fits on a line."""
    if result.body is None:
        return result.error.message if result.error else "no result"
    modes: Any = result.body["modes"]
    name, mode = list(modes.items())[-1]
    return f"{name.replace('_', ' ')} {mode['timing']['median_ms']:.4g} ms, R {mode['R']:.3g}"


def _resolve_device(pool: LocalPool, device: str) -> tuple[str, dict[str, Any]]:
    """Ask a child process what torch sees, and turn the device name into one that exists there.

    Returns:
        The name ("cpu", "cuda:0") and the device's facts.

    Raises:
        UsageError: CUDA was asked for and torch cannot use it; the message says what torch sees.
    """
    answer: Any = pool.call(_Probe(device))
    if "error" in answer:
        raise UsageError(answer["error"])
    return str(answer["device"]), dict(answer["facts"])


def _metadata(device: str, facts: dict[str, Any], settings: dict[str, Any]) -> dict[str, Any]:
    """Return the facts of the run that stand above the tables, flat and JSON-ready."""
    from synora.batch.execute import provenance, utc_now

    here = provenance(utc_now(), 0.0)
    chosen = {name: "preset" if value is None else value for name, value in settings["overrides"].items()}
    chosen |= {name: "preset" if settings[name] is None else settings[name] for name in ("warmup", "iters")}
    shown = ("preset", "dtype", "tf32", "compile", "backward", "threads", "seed")
    return {
        "started_at": here.started_at,
        "command": shlex.join([_program(), *sys.argv[1:]]),
        "device": device,
        "device_name": facts["name"],
        **{name: settings[name] for name in shown},
        **chosen,
        "omp_wait_policy": os.environ["OMP_WAIT_POLICY"],
        **here.versions,
        **{
            name: facts[name]
            for name in ("torch", "cuda", "cudnn", "driver", "compute_capability", "power_limit_watts")
        },
        "git_commit": here.git.get("commit"),
        "git_dirty": here.git.get("dirty"),
        **here.machine,
    }


def _program() -> str:
    """Return the program's name as the user could type it again."""
    name = Path(sys.argv[0]).name
    return "synora" if name in {"synora", "__main__.py"} else sys.argv[0]


class _Probe:
    """Resolves a device name in a child process; a class, because the child receives it pickled."""

    def __init__(self, device: str) -> None:
        self.device = device

    def __call__(self) -> dict[str, Any]:
        from synora.runtime.device import device_facts, resolve_device

        try:
            found = resolve_device(self.device)
        except UsageError as error:
            return {"error": str(error)}
        return {"device": str(found), "facts": device_facts(found)}


def _new_run_dir(out_dir: Path, moment: str) -> Path:
    """Create and return a folder for this run alone; a second run in the same second gets a number."""
    stamp = moment.replace("-", "").replace(":", "").replace("+0000", "Z")
    for number in range(1000):
        folder = out_dir / "runs" / (stamp if number == 0 else f"{stamp}-{number}")
        try:
            folder.mkdir(parents=True)
        except FileExistsError:
            continue
        except OSError as error:
            raise UsageError(
                f"{folder} cannot be made: {error.strerror or error}. Choose another --out-dir."
            ) from error
        return folder
    raise UsageError(f"{out_dir / 'runs'} already holds 1000 runs of this second; choose another --out-dir.")


def _names(values: Sequence[str] | None, flag: str) -> list[str]:
    """Split comma-separated names, which may also be given by repeating the flag."""
    if values is None:
        return []
    names = [name.strip() for value in values for name in value.split(",") if name.strip()]
    if not names:
        raise UsageError(f"{flag} needs at least one name; see --list.")
    return names
