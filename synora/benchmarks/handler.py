"""One returns job: an adapter is built, its checkpoint loaded, the games of one evaluation seed are played."""

from __future__ import annotations

import contextlib
import importlib
import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from synora.benchmarks.adapters import ADAPTERS, Adapter
from synora.benchmarks.bsuite_logs import rows_of_games
from synora.benchmarks.episodes import read_evaluation, summary
from synora.benchmarks.settings import ReturnsParams, resolve
from synora.core.errors import SynoraError, UsageError

# Adapter classes that no other process could import: of a notebook, a script or a function.
_IN_THIS_PROCESS: dict[str, type] = {}
MOST_RECORDS = 1_000  # games of a bsuite task of which every one has a record in the result


def run(params: Mapping[str, Any], report: Callable[[str], None]) -> tuple[dict[str, Any], dict[str, Any], str | None]:
    """Play the games of a job.

    Args:
        params: the fields of `ReturnsParams`.
        report: called with a short text at every phase.

    Returns:
        The result's body, the device's facts and the protocol's fingerprint.

    Raises:
        SynoraError: the agent cannot be loaded or its answer is not valid. A game that fails is in the body.
    """
    settings = ReturnsParams(**params)
    cls = load_adapter(settings.agent)
    environment(settings, cls)
    report("loading the agent")
    with _staying(label(cls, settings.agent)):
        adapter = build(cls, settings)
        _require_usable(cls, settings)
        if settings.checkpoint is not None:
            adapter.load_checkpoint(settings.checkpoint)
        settings.protocol = settle_protocol(settings.protocol, [adapter])
        about = environment(settings, cls)
        if isinstance(adapter, Adapter):
            adapter.report = report
        episodes = read_evaluation(adapter.evaluate(settings.episodes), settings.episodes)
        facts = dict(adapter.facts()) if hasattr(adapter, "facts") else {}
    protocol = about["protocol"]
    body = {
        "agent": label(cls, settings.agent),
        "adapter": f"{cls.__module__}:{cls.__qualname__}",
        **about,
        "eval_seed": settings.eval_seed,
        "train_seed": facts.get("train_seed"),
        "checkpoint": _checkpoint(settings.checkpoint, facts.get("checkpoint")),
        "device": _device_name(facts.get("device")) or (None if settings.device == "auto" else settings.device),
        "preset": settings.preset,
        "num_envs": settings.num_envs,
        "num_episodes": settings.episodes,
        "episode_returns": [episode["return"] for episode in episodes],
        **summary(episodes),
        **_bsuite(about["env"], episodes),
        "episodes": _records(about["env"], episodes),
    }
    return body, dict(facts.get("device") or {}), protocol["fingerprint"] if protocol else None


def preflight(params: Mapping[str, Any], *, training: bool = False) -> Any:
    """Check everything about a job that can be checked without playing, and return the adapter.

    Args:
        params: the fields of `ReturnsParams`.
        training: the checkpoint will be made first, so that there is none yet.

    Raises:
        UsageError: an unknown name, a checkpoint that is missing or of another kind, no such device.
        FileError: the checkpoint is damaged.
    """
    settings = ReturnsParams(**params)
    cls = load_adapter(settings.agent)
    environment(settings, cls)
    if not training:
        _require_usable(cls, settings)
    if settings.device not in ("auto", "cpu"):
        from synora.runtime.device import resolve_device

        resolve_device(settings.device)
    try:
        with _staying(label(cls, settings.agent)):
            adapter = build(cls, settings)
            if hasattr(adapter, "preflight"):
                adapter.preflight(settings.checkpoint)
            elif settings.checkpoint is not None:
                adapter.load_checkpoint(settings.checkpoint)
    except SynoraError:
        raise
    except Exception as error:
        who, detail = label(cls, settings.agent), " ".join(f"{type(error).__name__}: {error}".split())
        raise SynoraError(f"agent {who} cannot be loaded: {detail}") from error
    return adapter


def settle_protocol(asked: str | None, adapters: Iterable[Any]) -> str | None:
    """Return the protocol of a benchmark: what was asked for, else what the checkpoints were trained under.

    Args:
        asked: by the user; None for nothing.
        adapters: after their `preflight`.

    Raises:
        UsageError: the checkpoints were trained under different protocols, and none was asked for.
    """
    if asked is not None:
        return asked
    trained = {getattr(one, "name", ""): one.trained_protocol() for one in adapters if hasattr(one, "trained_protocol")}
    known = {name: protocol for name, protocol in trained.items() if protocol is not None}
    if bad := [f"{name}: {protocol!r}" for name, protocol in known.items() if not isinstance(protocol, str)]:
        raise UsageError(f"trained_protocol() must return the name of a protocol or None ({', '.join(bad)}).")
    if len(set(known.values())) > 1:
        told = ", ".join(f"{name} under {protocol}" for name, protocol in sorted(known.items()))
        raise UsageError(f"the checkpoints were trained under different rules ({told}): choose with --protocol.")
    return next(iter(known.values()), None)


def load_adapter(name: str) -> type:
    """Return the adapter class of a registered name, or of "module:Class".

    Raises:
        UsageError: the name is unknown, or it is not an adapter.
        SynoraError: its module cannot be imported.
    """
    if name in _IN_THIS_PROCESS:
        return _IN_THIS_PROCESS[name]
    cls = _import(name) if ":" in name else ADAPTERS.load(name)
    return require_adapter(cls)


def name_of(cls: type) -> str:
    """Return the name under which jobs find an adapter class; one that cannot be imported is known here only.

    Raises:
        UsageError: it is not an adapter.
    """
    target = f"{require_adapter(cls).__module__}:{cls.__qualname__}"
    name = getattr(cls, "name", None)
    if name in ADAPTERS.names() and ADAPTERS.load(name) is cls:
        return str(name)
    try:
        found = cls.__module__ != "__main__" and _import(target) is cls
    except SynoraError:
        found = False
    if not found:
        _IN_THIS_PROCESS[target] = cls
    return target


def require_adapter(cls: Any) -> type:
    """Return the class; raise UsageError unless it has the two methods of an adapter."""
    for method in ("load_checkpoint", "evaluate"):
        if not inspect.isclass(cls) or not callable(getattr(cls, method, None)):
            raise UsageError(f"{cls!r} is not an adapter class: it has no method {method}.")
    if inspect.isabstract(cls):
        raise UsageError(
            f"{cls.__name__} is not a whole adapter: it lacks {', '.join(sorted(cls.__abstractmethods__))}."
        )
    return cls


def label(cls: type, name: str) -> str:
    """Return what an adapter's agent is called in reports, given the name it was found under."""
    return str(getattr(cls, "name", "") or (cls.__name__ if ":" in name else name))


def build(cls: type, settings: ReturnsParams) -> Any:
    """Make the adapter, with those of our arguments that it takes and all of the caller's extra ones.

    Raises:
        UsageError: the constructor does not take an extra argument, or fails on its values.
    """
    ours = {
        "env_spec": settings.env_spec,
        "seed": settings.eval_seed,
        "device": settings.device,
        "preset": settings.preset,
        "num_envs": settings.num_envs,
    }
    if clash := sorted(ours.keys() & settings.extra.keys()):
        raise UsageError(f"extra argument {clash[0]!r} is the benchmark's own: set it there. Further ones are free.")
    signature = inspect.signature(cls)
    takes_all = any(p.kind is inspect.Parameter.VAR_KEYWORD for p in signature.parameters.values())
    chosen = {key: value for key, value in ours.items() if takes_all or key in signature.parameters}
    try:
        signature.bind(**{**chosen, **settings.extra})
    except TypeError as error:
        raise UsageError(
            f"{cls.__name__} cannot be made with the extra arguments {settings.extra}: {error}."
        ) from error
    return cls(**{**chosen, **settings.extra})


def environment(settings: ReturnsParams, cls: type) -> dict[str, Any]:
    """Return what a result says of the environment: `env` and `protocol`, None where the adapter brings its own.

    Raises:
        UsageError: no environment, backend or protocol has that name.
    """
    asked = {"game": settings.game, "backend": settings.backend}
    if getattr(cls, "own_environments", False):
        return {"env": {**asked, "name": settings.game}, "protocol": None}
    resolved, rules = resolve(settings)
    env = {"game": settings.game, "name": resolved.name, "backend": resolved.backend, "note": resolved.note or None}
    return {"env": env, "protocol": rules.describe()}


@contextlib.contextmanager
def _staying(agent: str) -> Iterator[None]:
    """Turn an adapter's `sys.exit()` into a failure: the benchmark's exit code is not the adapter's to choose."""
    try:
        yield
    except SystemExit as leaving:
        raise SynoraError(f"the code of agent {agent} called sys.exit({leaving.code!r}).") from leaving


def _require_usable(cls: type, settings: ReturnsParams) -> None:
    """Raise UsageError for a checkpoint that is missing, not there, or not wanted."""
    needs = getattr(cls, "needs_checkpoint", None)
    if settings.checkpoint is None:
        if needs:
            raise UsageError(
                f"agent {label(cls, settings.agent)} needs a checkpoint: give --checkpoint PATH, or train first with "
                "--train-epochs N. In Python: run(..., checkpoint=PATH)."
            )
    elif needs is False:
        raise UsageError(f"agent {label(cls, settings.agent)} takes no checkpoint (got {settings.checkpoint!r}).")
    elif not Path(settings.checkpoint).exists():
        raise UsageError(f"checkpoint {settings.checkpoint!r} does not exist.")


def _bsuite(env: Mapping[str, Any], episodes: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return, as `bsuite`, what its score needs of the games of a task: the rows that its logger would have written.

    There are none, and a reason, as soon as one game is missing: the sums over all games do not exist then.
    """
    if env["backend"] != "bsuite":
        return {}
    found: dict[str, Any] = {"task": env["name"], "rows": [], "episodes": len(episodes), "reason": None}
    if failed := [episode for episode in episodes if episode["status"] != "ok"]:
        first = failed[0]
        found["reason"] = (
            f"{len(failed)} of {len(episodes)} games failed; the first, game {first['index']}: {first['error']}"
        )
    elif any(episode["figures"] is None or episode["length"] is None for episode in episodes):
        found["reason"] = "the adapter does not tell bsuite's figures and the length of every game"
    else:
        games = [
            {**episode["figures"], "return": episode["return"], "length": episode["length"]} for episode in episodes
        ]
        found["rows"] = list(rows_of_games(games))
    return {"bsuite": found}


def _records(env: Mapping[str, Any], episodes: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return the records of the games; of very many games of a bsuite task those that failed.

    The rows of `_bsuite` say what became of the others, in a hundredth of the space.
    """
    few = env["backend"] != "bsuite" or len(episodes) <= MOST_RECORDS
    kept = [episode for episode in episodes if few or episode["status"] != "ok"]
    return [{key: value for key, value in episode.items() if key != "figures"} for episode in kept]


def _checkpoint(path: str | None, facts: Any) -> dict[str, Any] | None:
    return None if path is None else {"path": path, **(facts or {})}


def _device_name(facts: Any) -> str | None:
    """Return the device that was used ("cuda:0") from its facts, None when they do not say."""
    if not facts or "type" not in facts:
        return None
    return str(facts["type"]) if facts.get("index") is None else f"{facts['type']}:{facts['index']}"


def _import(target: str) -> Any:
    """Return what "module:Outer.Inner" stands for."""
    module_name, _, path = target.partition(":")
    try:
        found: Any = importlib.import_module(module_name)
        for part in path.split("."):
            found = getattr(found, part)
    except (Exception, SystemExit) as error:
        detail = " ".join(f"{type(error).__name__}: {error}".split()).removesuffix(".")
        raise SynoraError(f"adapter {target!r} cannot be loaded: {detail}.") from error
    return found
