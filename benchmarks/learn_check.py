"""Learning proofs: train an agent on its experiment with several seeds, score it, and put the random agent beside it.

    python benchmarks/learn_check.py --agent dreamerv2 --experiment catch --seeds 0,1,2 --record

Every run is a normal `synora train` in its own process and continues when it is started again; every score is a normal
`synora benchmark` of the run's last checkpoint. `--record` writes docs/learning/AGENT_EXPERIMENT.{json,png}. Exit
codes: 0 the experiment's bar is met by every seed, 1 it is not or a run failed, 2 bad usage.
"""

from __future__ import annotations

import argparse
import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from synora.core.errors import SynoraError, UsageError, unknown_value
from synora.core.files import read_json, write_bytes, write_json
from synora.core.machine import git_commit, machine_facts
from synora.runtime.metrics_log import read_rows

REPOSITORY = Path(__file__).resolve().parent.parent
POLL_SECONDS = 30


@dataclass(frozen=True)
class Experiment:
    """What is proved.

    Attributes:
        agents: that have a configuration `AGENT_NAME.yaml` of this name.
        episodes: whole games that score a run, and the random agent.
        bar: every run's mean return must reach it; None: it must exceed the random agent's.
        minutes: a run may take, on two cores.
    """

    agents: tuple[str, ...]
    episodes: int
    bar: float | None
    minutes: float


EXPERIMENTS = {
    "catch": Experiment(("dreamerv1", "dreamerv2"), episodes=100, bar=0.8, minutes=30),
    "pendulum": Experiment(("dreamerv1",), episodes=20, bar=None, minutes=60),
    "boxing": Experiment(("dreamerv2",), episodes=10, bar=None, minutes=60),
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one learning proof and return its exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--agent", required=True)
    parser.add_argument("--experiment", default="catch", help=f"one of {', '.join(EXPERIMENTS)}")
    parser.add_argument("--seeds", default="0,1,2", help="training seeds, separated by commas")
    parser.add_argument("--jobs", type=int, default=1, help="runs side by side, each with its share of the cores")
    parser.add_argument("--threads", type=int, help="of each run; default: its share of the cores")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--out-dir", type=Path, default=REPOSITORY / "results" / "learning")
    parser.add_argument("--record", action="store_true", help="write docs/learning/AGENT_EXPERIMENT.{json,png}")
    options = parser.parse_args(arguments)
    try:
        return Proof(options).run()
    except SynoraError as error:
        print(f"learn_check: error: {error}", file=sys.stderr)
        return error.exit_code
    except KeyboardInterrupt:
        print("learn_check: interrupted; the same command goes on.", file=sys.stderr)
        return 130


class Proof:
    """One agent on one experiment; `options` are the parsed arguments."""

    def __init__(self, options: argparse.Namespace) -> None:
        if options.experiment not in EXPERIMENTS:
            raise unknown_value("experiment", options.experiment, EXPERIMENTS)
        self.experiment = EXPERIMENTS[options.experiment]
        if options.agent not in self.experiment.agents:
            raise unknown_value(f"agent for {options.experiment}", options.agent, self.experiment.agents)
        try:
            self.seeds = [int(text) for text in options.seeds.split(",")]
        except ValueError:
            raise UsageError(f"--seeds {options.seeds!r} is not a list such as 0,1,2.") from None
        if min(self.seeds) < 0 or len(set(self.seeds)) < len(self.seeds):
            raise UsageError(f"--seeds {options.seeds!r}: seeds are not negative, and each is named once.")
        for flag, value in (("--jobs", options.jobs), ("--threads", options.threads)):
            if value is not None and value < 1:
                raise UsageError(f"{flag} {value} is not at least 1.")
        self.options = options
        self.name = f"{options.agent}_{options.experiment}"
        self.folder = options.out_dir / self.name
        self.threads = options.threads or max(1, (os.cpu_count() or 1) // options.jobs)
        self.config = self._composed()
        self.children: list[subprocess.Popen[bytes]] = []

    def run(self) -> int:
        """Train and score every seed, score the random agent, report."""
        self.folder.mkdir(parents=True, exist_ok=True)
        with ThreadPoolExecutor(self.options.jobs) as pool:
            try:
                runs = list(pool.map(self._run_seed, self.seeds))
            except BaseException:
                pool.shutdown(wait=False, cancel_futures=True)
                for child in self.children:
                    child.terminate()  # it saves; the same command goes on with it
                raise
        random = self._score("random", None, self.folder / "random")
        passed = all(self._passes(run, random["mean"]) for run in runs)
        record = {
            "agent": self.options.agent,
            "experiment": self.options.experiment,
            "command": f"make learn-check AGENT={self.options.agent} EXPERIMENT={self.options.experiment}",
            "bar": self.experiment.bar,
            "passed": passed,
            "episodes": self.experiment.episodes,
            "config": self.config,
            "runs": runs,
            "random": random,
            "runs_side_by_side": self.options.jobs,
            "threads_of_a_run": self.threads,
            "machine": machine_facts(),
            "git": git_commit(REPOSITORY),
        }
        for run in runs:
            print(f"{self.name} seed {run['seed']}: return {run['mean']:.3f}, {run['minutes']:.1f} min")
        print(f"random: return {random['mean']:.3f}. {'Passed.' if passed else 'NOT passed.'}")
        target = REPOSITORY / "docs" / "learning" if self.options.record else self.folder
        print(write_json(target / f"{self.name}.json", record))
        print(write_bytes(target / f"{self.name}.png", picture(record)))
        return 0 if passed else 1

    def _passes(self, run: dict[str, Any], random: float) -> bool:
        good = run["mean"] > random if self.experiment.bar is None else run["mean"] >= self.experiment.bar
        return bool(good and run["minutes"] <= self.experiment.minutes)

    def _composed(self) -> dict[str, Any]:
        from synora.training import CONFIGS

        path = REPOSITORY / "synora" / "configs" / "experiments" / f"{self.name}.yaml"
        composed: dict[str, Any] = CONFIGS.load(self.options.agent).compose(file=path).model_dump(mode="json")
        return composed

    def _run_seed(self, seed: int) -> dict[str, Any]:
        """Train with one seed, or go on with it, and score the last checkpoint."""
        run = self.folder / f"seed-{seed}"
        arguments = ["train", self.options.agent, "--config", self.name, f"seed={seed}"]
        self._synora([*arguments, f"device={self.options.device}", "--out-dir", str(run)], run)
        rows = read_rows(run / "metrics.jsonl")
        curve = [[row["step"], row["eval/score"]] for row in rows if row["kind"] == "eval"]
        result = self._score(self.options.agent, run, self.folder / f"score-{seed}")
        last = {"steps": rows[-1]["step"], "updates": rows[-1]["updates"]}
        return {"seed": seed, **result, "minutes": _minutes(run), **last, "curve": curve}

    def _score(self, agent: str, checkpoint: Path | None, out_dir: Path) -> dict[str, Any]:
        arguments = ["benchmark", "--agent", agent, "--game", self.config["game"], "--seeds", "1"]
        arguments += ["--env-backend", self.config["env_backend"], "--episodes", str(self.experiment.episodes)]
        if self.config["protocol"] is not None:
            arguments += ["--protocol", self.config["protocol"]]
        if checkpoint is not None:
            arguments += ["--checkpoint", str(checkpoint)]
        self._synora([*arguments, "--device", self.options.device, "--out-dir", str(out_dir)], None)
        (scored,) = read_json(out_dir / "benchmark_results.json")["seeds"]
        return {"mean": scored["mean"], "std": scored["std"], "episode_returns": scored["episode_returns"]}

    def _synora(self, arguments: list[str], run: Path | None) -> None:
        """Run `synora` in a process of its own; say every now and then how far a training run is."""
        environment = {**os.environ, "OMP_NUM_THREADS": str(self.threads), "OMP_WAIT_POLICY": "PASSIVE"}
        log = self.folder / f"{run.name if run is not None else '-'.join(arguments[1:3]).strip('-')}.log"
        with log.open("a", encoding="utf-8") as output:
            child = subprocess.Popen(
                [sys.executable, "-m", "synora", *arguments],
                cwd=REPOSITORY,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
            )
            self.children.append(child)
            while True:
                try:
                    code = child.wait(POLL_SECONDS)
                    break
                except subprocess.TimeoutExpired:
                    if run is not None:
                        print(f"{time.strftime('%H:%M:%S')} {self.name} {_standing(run)}", flush=True)
        if code:
            raise SynoraError(f"synora {' '.join(arguments)} ended with exit code {code}; see {log}.")


def _standing(run: Path) -> str:
    """Say in a few words how far a run is."""
    try:
        rows = read_rows(run / "metrics.jsonl")
    except SynoraError:
        rows = []
    scores = [row["eval/score"] for row in rows if row["kind"] == "eval"]
    score = f", score {scores[-1]:.2f}" if scores else ""
    return f"{run.name}: step {rows[-1]['step'] if rows else 0}{score}"


def _minutes(run: Path) -> float:
    """Return the time all attempts at a run took; `seconds` in its rows count from each attempt's start."""
    seconds = [float(row["seconds"]) for row in read_rows(run / "timing.jsonl")]
    ends = [now for now, following in zip(seconds, [*seconds[1:], 0.0], strict=True) if following < now]
    return sum(ends) / 60


def picture(record: dict[str, Any]) -> bytes:
    """Draw the evaluation returns of every seed over the environment steps, with the random agent's mean, as PNG."""
    import io

    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(6, 3.6), layout="constrained")
    for run in record["runs"]:
        steps, scores = zip(*run["curve"], strict=True)
        (line,) = axes.plot(steps, scores, marker=".", label=f"seed {run['seed']}")
        axes.plot(run["steps"], run["mean"], marker="*", markersize=12, color=line.get_color())
    axes.axhline(record["random"]["mean"], color="grey", linestyle=":", label="random")
    if record["bar"] is not None:
        axes.axhline(record["bar"], color="black", linestyle="--", linewidth=1, label=f"bar {record['bar']}")
    axes.set(xlabel="agent steps", ylabel="return", title=f"{record['agent']} on {record['config']['game']}")
    axes.legend(frameon=False)
    output = io.BytesIO()
    figure.savefig(output, format="png", dpi=110, metadata={"Software": None})
    pyplot.close(figure)
    return output.getvalue()


if __name__ == "__main__":
    # As Ctrl-C does: the runs are told to save and stop.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    raise SystemExit(main())
