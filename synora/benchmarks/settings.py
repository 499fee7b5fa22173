"""The parameters of a returns job, and how a benchmark becomes jobs. Torch-free."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from pydantic import Field, JsonValue

from synora.core.config import Config
from synora.core.errors import UsageError
from synora.core.job import JobSpec
from synora.core.machine import check_device_name
from synora.envs.factory import resolve_env
from synora.envs.ids import EnvId
from synora.envs.protocol import Protocol

NUM_ENVS = 4  # not the machine's CPU count: the draws of a policy depend on it
MOST_SEEDS = 10_000
ENV_KEYS = ("game", "backend", "protocol", "options")


class ReturnsParams(Config):
    """The parameters of one returns job: an agent plays the games of one evaluation seed.

    Attributes:
        agent: registered name of an adapter, or "module:Class".
        game: environment, in any spelling.
        backend: "auto", "ale", "bsuite" or "gym".
        protocol: name of the rules; None for the backend's default.
        options: constructor values of the dummy environment.
        checkpoint: path; None for agents that need none.
        eval_seed: decides the games and the draws of the policy.
        episodes: games.
        num_envs: environments side by side.
        device: "auto", "cpu", "cuda" or "cuda:N".
        preset: the sizes that the agent must have; None: those of the checkpoint.
        extra: further keyword arguments of the adapter.
    """

    agent: str = Field(min_length=1)
    game: str
    backend: str = "auto"
    protocol: str | None = None
    options: dict[str, JsonValue] = Field(default_factory=dict)
    checkpoint: str | None = None
    eval_seed: int = Field(default=0, ge=0, lt=2**63)
    episodes: int = Field(default=5, ge=1, le=1_000_000)
    num_envs: int = Field(default=NUM_ENVS, ge=1, le=1024)
    device: str = "auto"
    preset: str | None = None
    extra: dict[str, JsonValue] = Field(default_factory=dict)

    @property
    def env_spec(self) -> dict[str, Any]:
        """What an adapter is told of the environment."""
        spec: dict[str, Any] = {"game": self.game, "backend": self.backend, "protocol": self.protocol}
        return {**spec, "options": self.options} if self.options else spec


def make_jobs(
    agent: str,
    env_spec: Mapping[str, Any],
    seeds: Sequence[int],
    *,
    label: str | None = None,
    checkpoints: Mapping[int, str] | None = None,
    **common: Any,
) -> list[JobSpec]:
    """Turn a benchmark of one agent into jobs, one an evaluation seed.

    Args:
        agent: as in `ReturnsParams`.
        env_spec: `game`, and if need be `backend`, `protocol` and `options`.
        seeds: of the evaluation; distinct.
        label: what to call the agent in the jobs' names; default: its name.
        checkpoints: seed -> path, where every seed has its own.
        common: further fields of `ReturnsParams`, the same for every job.

    Raises:
        UsageError: a value is not allowed.
    """
    env = check_env_spec(env_spec)
    jobs = []
    for seed in check_seeds(seeds):
        own = {} if checkpoints is None else {"checkpoint": checkpoints[seed]}
        params = ReturnsParams(agent=agent, **{**common, **own, **env, "eval_seed": seed})
        params.num_envs = min(params.num_envs, params.episodes)
        check_device_name(params.device)
        if params.checkpoint is not None and not _is_unicode(params.checkpoint):
            raise UsageError(f"checkpoint {params.checkpoint!r} has a name that is not UTF-8: rename it.")
        name = f"{label or agent} {params.game} seed {seed}"
        jobs.append(JobSpec(kind="returns", name=name[:120], params=params.model_dump(mode="json")))
    return jobs


def with_protocol(jobs: Sequence[JobSpec], protocol: str | None) -> list[JobSpec]:
    """Return the jobs under the given rules; None leaves them as they are."""
    if protocol is None:
        return list(jobs)
    return [job.model_copy(update={"params": {**job.params, "protocol": protocol}}) for job in jobs]


def check_env_spec(env_spec: Mapping[str, Any]) -> dict[str, Any]:
    """Return the environment's fields of `ReturnsParams`.

    Raises:
        UsageError: not a mapping with a game, or an unknown key.
    """
    if not isinstance(env_spec, Mapping) or not isinstance(env_spec.get("game"), str):
        raise UsageError(f"env_spec {env_spec!r} has no game: write {{'game': 'ALE/Pong-v5'}}.")
    if unknown := [str(key) for key in env_spec if key not in ENV_KEYS]:
        raise UsageError(f"env_spec has the unknown key {unknown[0]!r}. Allowed: {', '.join(ENV_KEYS)}.")
    # "backend": None is how callers say "no hint".
    return {key: value for key, value in env_spec.items() if value is not None}


def parse_seeds(text: str) -> list[int]:
    """Return the seeds that a text means: "3" is 0, 1, 2; "0,5" is 0 and 5; "3," is 3 alone.

    Raises:
        UsageError: not such a text, no seeds, or one twice.
    """
    parts = [part.strip() for part in text.split(",")]
    if len(parts) > 1 and not parts[-1]:
        parts.pop()  # "3,"
    elif len(parts) == 1:
        if not re.fullmatch(r"[0-9]{1,18}", parts[0]) or not 1 <= int(parts[0]) <= MOST_SEEDS:
            raise UsageError(
                f"--seeds {text!r} is not a number of seeds from 1 to {MOST_SEEDS}, nor a list. "
                "Write 3 for the seeds 0, 1 and 2; 0,5 for 0 and 5; 3, for 3 alone."
            )
        return list(range(int(parts[0])))
    bad = [part for part in parts if not re.fullmatch(r"[0-9]{1,18}", part)]
    if bad:
        raise UsageError(
            f"--seeds {text!r}: {bad[0]!r} is not a whole number from 0, of 18 digits at most. Write 0,1,2."
        )
    return check_seeds([int(part) for part in parts])


def check_seeds(seeds: Sequence[int]) -> list[int]:
    """Return distinct evaluation seeds as a list.

    Raises:
        UsageError: none, too many, one twice, or one that is not a whole number from 0 to 2**63 - 1.
    """
    found = list(seeds)
    if not 1 <= len(found) <= MOST_SEEDS:
        raise UsageError(f"seeds: {len(found)} were given; allowed are 1 to {MOST_SEEDS}.")
    for seed in found:
        if isinstance(seed, bool) or not isinstance(seed, int) or not 0 <= seed < 2**63:
            raise UsageError(f"seed {seed!r} is not a whole number from 0 to 2**63 - 1.")
    if twice := sorted({seed for seed in found if found.count(seed) > 1}) if len(set(found)) < len(found) else []:
        raise UsageError(f"seed {twice[0]} is given more than once: the same games would be counted twice.")
    return found


def resolve(params: ReturnsParams) -> tuple[EnvId, Protocol]:
    """Return the task and the evaluation rules that the parameters name; errors as `resolve_env`."""
    return resolve_env(params.game, backend=params.backend, protocol=params.protocol)


def _is_unicode(text: str) -> bool:
    """Return whether UTF-8 can hold a text; the names of files may hold half characters."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True
