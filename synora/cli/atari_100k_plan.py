"""The plan of the Atari-100k benchmark: which runs are trained or loaded, and how they are evaluated."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from synora.cli.benchmark_training import trainable_config
from synora.core.errors import ConfigError, SynoraError, UsageError, unknown_value

if TYPE_CHECKING:
    from synora.core.config import Config
    from synora.core.job import JobSpec

STEPS = 100_000
EPISODES = 100
TRAIN = "train"  # folder of the runs, below the output folder
# For a look at the whole path within minutes; the rules' name says that games are cut.
TINY_STEPS, TINY_EPISODES, TINY_PROTOCOL = 600, 2, "atari-100k,max_frames=2000"
# What the benchmark sets itself, and the option that does.
_OURS = {
    "game": "--games",
    "seed": "--num-seeds",
    "env_backend": "--games",
    "protocol": "--protocol",
    "device": "--device",
    "preset": "--preset",
    "total_steps": "--steps",
}


@dataclass(frozen=True)
class Settings:
    """What was asked for.

    Attributes:
        agents: registered names.
        games: canonical names.
        seeds: one a training run.
        episodes: games of an evaluation.
        steps: agent steps of a run; None: those of the agent's experiment, 100,000.
        preset: of the agents' configurations; None for that of the experiment.
        protocol: rules by name.
        device: "auto", "cpu", "cuda" or "cuda:N".
        num_envs: environments side by side in an evaluation.
        overrides: `key=value` texts for the configurations.
        checkpoint_dir: AGENT/GAME/seed-S below it is loaded; None: nothing is.
        train: whether what has no checkpoint is trained.
        evaluate: whether runs are evaluated.
        out_dir: of runs and results.
    """

    agents: tuple[str, ...]
    games: tuple[str, ...]
    seeds: tuple[int, ...]
    episodes: int
    steps: int | None
    preset: str | None
    protocol: str
    device: str
    num_envs: int
    overrides: tuple[str, ...]
    checkpoint_dir: Path | None
    train: bool
    evaluate: bool
    out_dir: Path


@dataclass(frozen=True)
class Entry:
    """One agent in one game with one seed.

    Attributes:
        agent: registered name.
        game: canonical name.
        seed: of the training; for an agent that is not trained, of the evaluation.
        checkpoint: that is loaded; None when the run is trained here or the agent is not trained at all.
        config: of the run that is trained here, else None.
        training: its job.
        evaluation: None where only training was asked for.
    """

    agent: str
    game: str
    seed: int
    checkpoint: Path | None
    config: Config | None
    training: JobSpec | None
    evaluation: JobSpec | None


def parse_games(texts: Sequence[str] | None) -> tuple[str, ...]:
    """Return canonical names of `A,B` texts, in any spelling; None means all 26.

    Raises:
        UsageError: a game is not one of the 26, or is given twice.
    """
    from synora.benchmarks.scores import atari_100k_games, find_reference

    if texts is None:
        return atari_100k_games()
    games = []
    for text in split_names(texts, "--games"):
        found = find_reference(text)
        if found.scores is None:
            raise unknown_value("Atari 100k game", text, atari_100k_games())
        games.append(found.scores.game)
    _require_distinct(games, "--games")
    return tuple(games)


def parse_agents(texts: Sequence[str] | None) -> tuple[str, ...]:
    """Return registered agents of `a,b` texts; None means iris where it is registered, else dreamerv2.

    Raises:
        UsageError: an agent is unknown, or given twice.
    """
    from synora.benchmarks.adapters import ADAPTERS

    names = ADAPTERS.names()
    if texts is None:
        return ("iris",) if "iris" in names else ("dreamerv2",)
    agents = split_names(texts, "--agents")
    for agent in agents:
        if agent not in names:
            raise unknown_value("agent", agent, names)
    _require_distinct(agents, "--agents")
    return tuple(agents)


def split_names(texts: Sequence[str], flag: str) -> list[str]:
    """Return the names in comma-separated texts.

    Raises:
        UsageError: there is none, or an empty one.
    """
    names = [name.strip() for text in texts for name in text.split(",")]
    if not all(names):
        raise UsageError(f"{flag} {','.join(texts)!r} holds an empty name: write A,B.")
    return names


def is_trained(agent: str) -> bool:
    """Return whether an agent is trained at all; the random one is not."""
    from synora.benchmarks.handler import load_adapter
    from synora.cli import benchmark_common

    return benchmark_common.is_trained(load_adapter(agent))


def make_entries(settings: Settings) -> list[Entry]:
    """Return everything that is to be done, agent by agent, game by game; every name and value checked.

    Raises:
        UsageError: a value is not allowed, or checkpoints are missing; all of them are named.
        FileError: a checkpoint cannot be read.
    """
    from synora.core.machine import check_device_name
    from synora.envs.factory import resolve_env
    from synora.training.handler import make_train_job

    check_device_name(settings.device)
    _check_overrides(settings.overrides)
    for game in settings.games:
        resolve_env(game, backend="ale", protocol=settings.protocol)
    found = _find_checkpoints(settings)
    entries = []
    for agent in settings.agents:
        for game in settings.games:
            for seed in settings.seeds:
                checkpoint = found.get((agent, game, seed))
                config, training = None, None
                name = f"{agent} {game} seed {seed}"
                path = checkpoint
                if checkpoint is None and is_trained(agent):
                    path = settings.out_dir / TRAIN / agent / game / f"seed-{seed}"
                    config = compose_config(settings, agent, game, seed)
                    training = make_train_job(agent, config, path, name=f"train {name}")
                evaluation = _evaluation(settings, agent, game, seed, path) if settings.evaluate else None
                entries.append(Entry(agent, game, seed, checkpoint, config, training, evaluation))
    if not any(entry.training or entry.evaluation for entry in entries):
        raise UsageError(f"there is nothing to train: {', '.join(settings.agents)}. Leave --train out to evaluate.")
    return entries


def compose_config(settings: Settings, agent: str, game: str, seed: int) -> Any:
    """Return the configuration of a run: the packaged experiment `AGENT_atari100k`, if any, then what was asked for.

    Raises:
        UsageError: the agent cannot be trained, or a value is not allowed.
    """
    from synora.configs.experiments import experiment_names, find_experiment
    from synora.core.config import parse_overrides

    name = f"{agent}_atari100k"
    file = find_experiment(name) if name in experiment_names(agent) else None
    steps = STEPS if settings.steps is None and file is None else settings.steps
    values: dict[str, Any] = {"game": game, "env_backend": "ale", "protocol": settings.protocol, "seed": seed}
    values |= {"device": settings.device} | ({} if steps is None else {"total_steps": steps})
    config_class = trainable_config(agent, list(values))
    overrides = {**parse_overrides(settings.overrides), **values}
    return config_class.compose(file=file, preset=settings.preset, overrides=overrides)


def check_entries(entries: Sequence[Entry], settings: Settings) -> None:
    """Find out whether every agent can be loaded or trained in every game, without playing.

    Raises:
        UsageError: a checkpoint is of another agent or game, or a configuration does not fit.
        FileError: a checkpoint is damaged.
    """
    from synora.benchmarks.handler import preflight

    checked = set()
    for entry in entries:
        params: Any = _evaluation(settings, entry.agent, entry.game, entry.seed, entry.checkpoint).params
        if entry.checkpoint is not None:
            preflight(params)
        elif (entry.agent, entry.game) not in checked:
            checked.add((entry.agent, entry.game))  # runs of one game differ in their seed only
            adapter = preflight(params, training=entry.config is not None)
            if entry.config is not None and hasattr(adapter, "preflight_training"):
                adapter.preflight_training(entry.config)


def _evaluation(settings: Settings, agent: str, game: str, seed: int, path: Path | None) -> JobSpec:
    from synora.benchmarks.settings import make_jobs

    env = {"game": game, "backend": "ale", "protocol": settings.protocol}
    checkpoints = None if path is None else {seed: str(path)}
    (job,) = make_jobs(
        agent,
        env,
        [seed],
        checkpoints=checkpoints,
        episodes=settings.episodes,
        num_envs=settings.num_envs,
        device=settings.device,
    )
    return job


def _check_overrides(texts: Sequence[str]) -> None:
    from synora.core.config import parse_overrides

    for key in parse_overrides(texts):
        if key in _OURS:
            raise ConfigError(f"{key}=… is the benchmark's own: write {_OURS[key]}.")


def _find_checkpoints(settings: Settings) -> dict[tuple[str, str, int], Path]:
    """Return where the checkpoints are that are loaded.

    Raises:
        UsageError: some are missing and may not be trained, or two seeds are the same run.
    """
    root = settings.checkpoint_dir
    if root is None:
        return {}
    if not root.is_dir():
        raise UsageError(f"--checkpoint-dir {str(root)!r} is not a folder.")
    found, missing = {}, []
    for agent in settings.agents:
        if not is_trained(agent):
            continue
        for game in settings.games:
            for seed in settings.seeds:
                path = _checkpoint(root, agent, game, seed)
                if path is not None:
                    found[agent, game, seed] = path
                else:
                    missing.append(f"{agent}/{game}/seed-{seed}")
    if missing and not settings.train:
        raise UsageError(
            f"{len(missing)} checkpoint(s) missing in {root}: {', '.join(missing)}. Choose fewer with --games, "
            "--num-seeds or --agents, or train them with --train."
        )
    _require_different_runs(found)
    return found


def _checkpoint(root: Path, agent: str, game: str, seed: int) -> Path | None:
    """Return the run folder, checkpoint folder or exported file of a run.

    Raises:
        UsageError: there are two.
    """
    from synora.batch.keep import checkpoint_digest

    folders = [folder for folder in sorted((root / agent).glob("*")) if _game_of(folder.name) == game]
    paths = [folder / f"seed-{seed}{suffix}" for folder in folders for suffix in ("", ".safetensors")]
    there = [path for path in paths if checkpoint_digest(path) is not None]
    if len(there) > 1:
        raise UsageError(f"{there[0]} and {there[1]} are both {agent} in {game} with seed {seed}: keep one.")
    return there[0] if there else None


@cache
def _game_of(folder: str) -> str | None:
    """Return the game a folder is named after, also as `synora train` writes it (`ALE-Pong-v5`)."""
    from synora.benchmarks.scores import find_reference

    found = find_reference(folder).scores or find_reference(folder.replace("ALE-", "ALE/", 1)).scores
    return found.game if found else None


def _require_different_runs(found: dict[tuple[str, str, int], Path]) -> None:
    """Raise UsageError where one run would count twice, or was trained in another game."""
    from synora.batch.keep import checkpoint_digest

    runs: dict[tuple[str, Any], Path] = {}
    for (agent, game, _), path in found.items():
        config = _trained_config(path)
        trained_in = config.get("game")
        if isinstance(trained_in, str) and _game_of(trained_in) != game:
            raise UsageError(f"{path} was trained in {trained_in}, not in {game}.")
        keys = [(agent, checkpoint_digest(path))]
        keys += [(f"{agent} {game}", config["seed"])] if "seed" in config else []
        for key in keys:
            if key in runs:
                raise UsageError(f"{runs[key]} and {path} are the same training run: it would be counted twice.")
            runs[key] = path


def _trained_config(path: Path) -> dict[str, Any]:
    """Return the configuration that a checkpoint of synora was trained with; empty for any other."""
    from synora.runtime.checkpoint import load_checkpoint

    try:
        return dict(load_checkpoint(path, parts=[]).manifest.config)
    except SynoraError:  # an adapter of its own format, or damaged: the check of the adapter says so
        return {}


def _require_distinct(names: Sequence[str], flag: str) -> None:
    if twice := sorted({name for name in names if names.count(name) > 1}):
        raise UsageError(f"{flag} names {twice[0]} more than once.")
