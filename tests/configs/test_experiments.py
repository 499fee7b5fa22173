"""The packaged experiments: every one composes strictly for its agent, and its environment can be made."""

from importlib.resources import files

import pytest

from synora.configs.experiments import experiment_names, experiment_title, find_experiment
from synora.core.config import read_yaml_mapping
from synora.core.errors import ConfigError
from synora.envs.factory import make_env
from synora.training import CONFIGS

NAMES = experiment_names()


def test_the_documented_experiments_are_there() -> None:
    assert {"dreamerv1_catch", "dreamerv2_catch", "dreamerv1_pendulum", "dreamerv2_atari"} <= set(NAMES)
    packaged = files("synora.configs.experiments")
    assert all(packaged.joinpath(f"{name}.yaml").is_file() for name in NAMES)
    assert experiment_names("dreamerv1") == [name for name in NAMES if name.startswith("dreamerv1_")]


@pytest.mark.parametrize("name", NAMES)
def test_an_experiment_composes_for_its_agent(name: str) -> None:
    file = find_experiment(name)
    values = read_yaml_mapping(file)
    config = CONFIGS.load(name.partition("_")[0]).compose(file=file)
    assert {key: getattr(config, key) for key in values if key != "preset"} == {
        key: value for key, value in values.items() if key != "preset"
    }
    assert config.total_steps > config.prefill_steps
    assert experiment_title(name).endswith((".", "?"))
    command = f"synora train {name.partition('_')[0]} --config {name}"
    assert command in file.read_text()
    with make_env(config.game, backend=config.env_backend, protocol=config.protocol, train=True) as env:
        assert env.observation_shape[:2] == (64, 64)


def test_an_unknown_name_lists_what_there_is() -> None:
    with pytest.raises(ConfigError, match=r"Did you mean 'dreamerv2_catch'\? Experiments: dreamerv1_catch, "):
        find_experiment("dreamerv2_ctch")
