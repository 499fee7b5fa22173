"""The packaged experiments: YAML files of config values, each named AGENT_WHAT.yaml, found by name."""

from __future__ import annotations

from importlib.resources import files
from pathlib import Path

from synora.core.errors import ConfigError, closest


def experiment_names(agent: str | None = None) -> list[str]:
    """Return the names of the packaged experiments, of one agent or all."""
    names = [file.name.removesuffix(".yaml") for file in files(__name__).iterdir() if file.name.endswith(".yaml")]
    return sorted(name for name in names if agent is None or name.startswith(f"{agent}_"))


def find_experiment(text: str) -> Path:
    """Return the file that a user means: a path that exists, or else the packaged experiment of that name.

    Raises:
        ConfigError: neither; the message lists what there is.
    """
    given = Path(text)
    if given.exists():
        return given
    names = experiment_names()
    stem = given.name.removesuffix(".yaml")
    if stem in names and given.parent == Path("."):
        return Path(str(files(__name__))) / f"{stem}.yaml"
    match = closest(stem, names)
    guess = f" Did you mean {match!r}?" if match else ""
    raise ConfigError(
        f"cannot read config file {text!r}: No such file, nor a packaged experiment.{guess} "
        f"Experiments: {', '.join(names)}."
    )


def experiment_title(name: str) -> str:
    """Return the first comment line of a packaged experiment."""
    first = files(__name__).joinpath(f"{name}.yaml").read_text(encoding="utf-8").partition("\n")[0]
    return first.removeprefix("#").strip()
