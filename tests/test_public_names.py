"""What users import: the names of `synora`, `synora.models` and `synora.configs`."""

import subprocess
import sys

import pytest

import synora

NAMES = ["DreamerAgent", "DreamerConfig", "DreamerV1Config", "DreamerV2Config", "make_env", "make_vector_env"]


@pytest.mark.parametrize("name", NAMES)
def test_a_name_is_the_one_of_the_package(name: str) -> None:
    assert getattr(synora, name).__name__ == name
    assert name in dir(synora)
    assert name in synora.__all__


def test_the_facades_re_export_the_same_objects() -> None:
    from synora.configs import dreamer_config
    from synora.models import dreamer

    assert dreamer.DreamerAgent is synora.DreamerAgent
    assert dreamer.DreamerV2Config is dreamer_config.DreamerV2Config is synora.DreamerV2Config


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="module 'synora' has no attribute 'DreamerV9Config'"):
        _ = synora.DreamerV9Config
    with pytest.raises(ImportError, match="DreamerV9Config"):
        exec("from synora import DreamerV9Config")


def test_importing_configurations_loads_no_torch() -> None:
    code = (
        "import sys, synora\nbare = sorted({name.partition('.')[0] for name in sys.modules} & {'pydantic', 'numpy'})\n"
        "from synora import DreamerConfig, DreamerV2Config, make_env\n"
        "print(bare, 'torch' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[] False"
