"""The local pool under jobs that do their worst; every test uses real processes."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from synora.batch.execute import InProcessExecutor, provenance
from synora.batch.local import JobEvent, LocalPool
from synora.batch.plan import Plan, result_path
from synora.core.errors import FileError, UsageError
from synora.core.files import lease
from synora.core.job import JobSpec
from synora.core.result import ErrorInfo, Result

MakeJob = Callable[..., JobSpec]
WaitGone = Callable[..., bool]
WaitPid = Callable[[Path], int]
HERE = Path(__file__).parent

# A program of its own, as `synora sweep` is: argv holds the output folder and the number of jobs at a time.
PROGRAM = """
import sys
from pathlib import Path
from synora.batch.local import LocalPool
from synora.batch.plan import Plan
if __name__ == "__main__":
    out = Path(sys.argv[1])
    plan = Plan.read(out / "plan.json")
    for result in LocalPool(jobs=int(sys.argv[2]), preload=("synora_fake_jobs",)).run(plan, out):
        print(result.status, flush=True)
"""


@pytest.fixture
def run(fake_server: tuple[str, ...], tmp_path: Path) -> Callable[..., list[Result]]:
    """Run jobs in a pool, in `tmp_path`; every result must be on disk when it is yielded."""

    def run_all(*jobs: JobSpec, **options: Any) -> list[Result]:
        results = []
        for result in LocalPool(preload=fake_server, **options).run(Plan.of(jobs), tmp_path):
            assert Result.read(result_path(tmp_path, result.job)) == result
            results.append(result)
        return results

    return run_all


def why(result: Result) -> ErrorInfo:
    assert result.body is None
    assert result.error is not None
    assert "\n" not in result.error.message
    return result.error


def log_of(folder: Path, job: JobSpec) -> str:
    return result_path(folder, job).with_suffix(".log").read_text()


@pytest.mark.usefixtures("fake_jobs")
def test_the_pool_gives_what_running_in_process_gives(run: Any, job: MakeJob, tmp_path: Path) -> None:
    dos = ["raise", "raise usage", "raise half character", "skip", "run out of memory", "return nan", "return none"]
    jobs = [job("work", x=3), *(job(do) for do in dos), job("work", x=4)]

    def summary(result: Result) -> Any:
        error = result.error and (result.error.type, result.error.message)
        return result.job, result.status, error, result.body, result.attempt, result.provenance.device

    here = list(InProcessExecutor().run(Plan.of(jobs), tmp_path / "here"))
    assert [summary(result) for result in run(*jobs)] == [summary(result) for result in here]
    assert [result.status for result in here] == ["ok", *["failed"] * 3, "skipped", *["failed"] * 3, "ok"]


@pytest.mark.parametrize(
    ("do", "params", "kind", "parts"),
    [
        ("exit politely", {"code": 0}, "died", ["exit code 0 and no result"]),
        ("exit politely", {"code": 3}, "died", ["exit code 3"]),
        ("exit politely", {"code": "with words"}, "died", ["exit code 1"]),
        ("exit at once", {"code": 0}, "died", ["exit code 0 and no result"]),
        ("exit at once", {"code": 9}, "died", ["exit code 9"]),
        ("segfault", {}, "signal:SIGSEGV", ["died of SIGSEGV"]),
        ("signal itself", {"signal": signal.SIGKILL}, "signal:SIGKILL", ["killed by SIGKILL", "memory"]),
        ("signal itself", {"signal": signal.SIGTERM}, "signal:SIGTERM", ["died of SIGTERM"]),
        ("signal itself", {"signal": signal.SIGINT}, "signal:SIGINT", ["died of SIGINT"]),
        ("signal itself", {"signal": signal.SIGABRT}, "signal:SIGABRT", ["died of SIGABRT"]),
    ],
)
def test_a_job_that_dies_fails_with_how_and_the_next_one_runs(
    run: Any, job: MakeJob, do: str, params: dict[str, Any], kind: str, parts: list[str]
) -> None:
    dead, alive = run(
        job(do, **{name: getattr(value, "value", value) for name, value in params.items()}), job("work", x=2)
    )
    assert dead.status == "failed"
    assert why(dead).type == kind
    for part in [*parts, f"during: about to {do}"]:
        assert part in why(dead).message
    assert alive.body == {"square": 4, "nothing": None, "text": "é"}


def test_a_crash_leaves_its_stack_and_last_words_in_the_log(run: Any, job: MakeJob, tmp_path: Path) -> None:
    crash, leave = job("segfault"), job("exit at once", code=1)
    results = run(crash, leave)
    assert str(result_path(tmp_path, crash).with_suffix(".log")) in why(results[0]).message
    assert "string_at" in log_of(tmp_path, crash)
    assert "last words" in log_of(tmp_path, leave)


def test_a_job_that_hangs_is_killed_with_all_it_started(
    run: Any, job: MakeJob, tmp_path: Path, wait_gone: WaitGone
) -> None:
    pid, grandchild = tmp_path / "pid", tmp_path / "grandchild"
    hung = job("start grandchild", then="hang", pid_file=str(pid), grandchild_file=str(grandchild))
    started = time.monotonic()
    result, alive = run(hung, job("work", x=2), timeout=1.5)
    assert 1.5 < time.monotonic() - started < 15
    assert (result.status, why(result).type) == ("timeout", "timeout")
    assert "time limit of 1.5 s, during: about to start grandchild" in why(result).message
    assert result.provenance.wall_seconds > 1.5
    assert wait_gone(int(pid.read_text()), 0)
    assert wait_gone(int(grandchild.read_text()), 5)
    assert alive.status == "ok"


@pytest.mark.parametrize("then", ["work", "raise", "segfault"])
def test_what_a_finished_job_leaves_running_is_stopped(
    run: Any, job: MakeJob, tmp_path: Path, wait_gone: WaitGone, then: str
) -> None:
    grandchild = tmp_path / "grandchild"
    run(job("start grandchild", then=then, x=1, grandchild_file=str(grandchild)))
    assert wait_gone(int(grandchild.read_text()), 5)


def test_a_job_that_grows_past_the_limit_is_out_of_memory(run: Any, job: MakeJob) -> None:
    big, alive = run(job("grow"), job("work", x=2), memory_limit=400 * 2**20, timeout=50)
    assert (big.status, why(big).type) == ("failed", "out_of_memory")
    assert "the limit is 0.4 GiB; during: growing" in why(big).message
    assert alive.status == "ok"


def test_output_of_a_job_goes_to_its_log_alone(
    run: Any, job: MakeJob, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    talker = job("print a lot")
    assert [result.status for result in run(talker)] == ["ok"]
    captured = capfd.readouterr()
    assert (captured.out, captured.err) == ("", "")
    log = log_of(tmp_path, talker).splitlines()
    for line in ("warning 1999", "raw stdout", "raw stderr", "from a program", "complaint"):
        assert line in log
    assert sum(line.startswith("line ") for line in log) == 2000
    run(talker)  # a log is of one run, not of all
    assert len(log_of(tmp_path, talker).splitlines()) == len(log)


def test_a_job_that_reports_without_pause_cannot_escape_its_limit(run: Any, job: MakeJob) -> None:
    started = time.monotonic()
    (result,) = run(job("report forever"), timeout=1)
    assert result.status == "timeout"
    assert time.monotonic() - started < 20


def test_a_job_that_closes_its_channel_is_still_watched_without_spinning(run: Any, job: MakeJob) -> None:
    run(job("work", x=1))  # the fork server has started
    began = time.process_time()
    (result,) = run(job("close every descriptor"), timeout=2)
    assert result.status == "timeout"
    assert time.process_time() - began < 1


def test_events_tell_starts_and_every_phase(run: Any, job: MakeJob) -> None:
    events: list[JobEvent] = []
    jobs = [job("report often"), job("segfault")]
    run(*jobs, on_event=events.append)
    assert [event.phase for event in events if event.index == 0] == [
        "starting",
        "about to report often",
        *(f"phase {number}" for number in range(200)),
    ]
    assert [event.phase for event in events if event.index == 1] == ["starting", "about to segfault"]
    assert all(event.job == jobs[event.index] for event in events)


def test_each_job_has_a_clean_process_and_session_of_its_own(run: Any, job: MakeJob) -> None:
    bodies = [result.body for result in run(*(job("describe itself", x=x) for x in range(3)))]
    assert len({body["pid"] for body in bodies}) == 3
    for body in bodies:
        assert body["session"] == body["pid"] != os.getpid()
        assert body["stdin"] == ""
        assert body["torch"] is False  # the fork server imports what it is told to, no more


@pytest.mark.parametrize("jobs", [1, 2])
def test_never_more_alive_than_asked_for(run: Any, job: MakeJob, jobs: int) -> None:
    results = run(*(job("take a moment", seconds=0.4, x=x) for x in range(4)), jobs=jobs)
    assert sorted(result.job.params["x"] for result in results) == list(range(4))
    spans = [(result.body["began"], result.body["ended"]) for result in results]
    most = max(sum(began <= moment < ended for began, ended in spans) for moment, _ in spans)
    assert most == jobs


def test_with_two_at_a_time_a_hung_one_does_not_hold_up_the_rest(run: Any, job: MakeJob) -> None:
    results = run(job("hang"), *(job("work", x=x) for x in range(3)), jobs=2, timeout=3)
    assert [result.status for result in results] == ["ok", "ok", "ok", "timeout"]


def test_leaving_early_kills_what_still_runs(
    fake_server: tuple[str, ...], job: MakeJob, tmp_path: Path, wait_pid: WaitPid, wait_gone: WaitGone
) -> None:
    pid_file = tmp_path / "pid"
    plan = Plan.of([job("work", x=1), job("hang", pid_file=str(pid_file)), job("work", x=2)])
    results = LocalPool(jobs=2, preload=fake_server).run(plan, tmp_path)
    assert next(results).status == "ok"
    pid = wait_pid(pid_file)
    results.close()  # type: ignore[attr-defined]
    assert wait_gone(pid, 0)
    assert not result_path(tmp_path, plan.jobs[1]).exists()


@pytest.mark.parametrize("phase", ["starting", "about to hang"])
def test_an_error_while_showing_progress_kills_what_still_runs(
    fake_server: tuple[str, ...], job: MakeJob, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, phase: str
) -> None:
    def interrupt(event: JobEvent) -> None:
        if event.phase == phase:
            raise KeyboardInterrupt

    started = []
    start = LocalPool._start

    def remember(self: LocalPool, *arguments: Any) -> Any:
        started.append(start(self, *arguments))
        return started[-1]

    monkeypatch.setattr(LocalPool, "_start", remember)
    with pytest.raises(KeyboardInterrupt):
        list(LocalPool(preload=fake_server, on_event=interrupt).run(Plan.of([job("hang")]), tmp_path))
    (child,) = started
    assert child.process.exitcode == -signal.SIGKILL


@pytest.mark.parametrize("jobs", [1, 2])
def test_no_child_outlives_a_killed_pool(
    job: MakeJob, tmp_path: Path, wait_pid: WaitPid, wait_gone: WaitGone, jobs: int
) -> None:
    (tmp_path / "program.py").write_text(PROGRAM)
    pid_files = [tmp_path / f"pid-{number}" for number in range(jobs)]
    Plan.of([job("hang", x=path.name, pid_file=str(path)) for path in pid_files]).write(tmp_path / "plan.json")
    with subprocess.Popen(
        [sys.executable, str(tmp_path / "program.py"), str(tmp_path), str(jobs)],
        env={**os.environ, "PYTHONPATH": str(HERE)},
    ) as pool:
        try:
            pids = [wait_pid(path) for path in pid_files]
        finally:
            pool.kill()
    assert [wait_gone(pid) for pid in pids] == [True] * jobs
    for spec in Plan.read(tmp_path / "plan.json").jobs:  # and the work is free to be done again
        with lease(result_path(tmp_path, spec)):
            pass


def test_a_job_another_process_is_at_is_reported_at_once(run: Any, job: MakeJob, tmp_path: Path) -> None:
    spec = job("work", x=1)
    started = time.monotonic()
    with lease(result_path(tmp_path, spec)):
        refused, alive = run(spec, job("work", x=2))
    assert time.monotonic() - started < 15
    assert refused.status == "failed"
    assert "is being written by another live process; wait for it or stop it first" in why(refused).message
    assert alive.status == "ok"


def test_the_result_of_an_earlier_run_is_never_taken(run: Any, job: MakeJob, tmp_path: Path) -> None:
    for spec in (job("exit politely", code=0), job("segfault")):
        earlier = Result(
            job_id=spec.job_id,
            job=spec,
            status="ok",
            body={"earlier": True},
            provenance=provenance("2026-01-01T00:00:00+00:00", 1.0),
        )
        earlier.write(result_path(tmp_path, spec))
        (result,) = run(spec)
        assert result.status == "failed"
        assert Result.read(result_path(tmp_path, spec)) == result


def test_an_earlier_file_that_is_no_result_does_not_matter(run: Any, job: MakeJob, tmp_path: Path) -> None:
    spec = job("work", x=1)
    path = result_path(tmp_path, spec)
    path.parent.mkdir()
    path.write_text('{"half": ')
    assert [result.status for result in run(spec)] == ["ok"]


def test_a_folder_that_cannot_be_written_is_one_line(
    fake_server: tuple[str, ...], job: MakeJob, tmp_path: Path
) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(FileError) as caught:
        list(LocalPool(preload=fake_server).run(Plan.of([job("work", x=1)]), tmp_path / "file"))
    assert "file" in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("options", "part"),
    [
        ({"jobs": 0}, "--jobs"),
        ({"jobs": -1}, "--jobs"),
        ({"timeout": 0}, "time limit"),
        ({"timeout": -1}, "time limit"),
    ],
)
def test_limits_are_checked_first(options: dict[str, Any], part: str) -> None:
    with pytest.raises(UsageError, match=part):
        LocalPool(**options)


def test_call_returns_raises_and_tells_of_death(fake_server: tuple[str, ...]) -> None:
    pool = LocalPool(preload=fake_server)
    assert pool.call(os.getpid) != os.getpid()
    with pytest.raises(RuntimeError, match="TypeError"):
        pool.call(os.kill)  # type: ignore[arg-type]
    with pytest.raises(RuntimeError, match=r"the probe process died \(exit code -6\)"):
        pool.call(os.abort)
