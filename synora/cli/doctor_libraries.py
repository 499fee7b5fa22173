"""Try one library for `synora doctor`, in a process of its own: a broken native library may crash or print.

Started by path (`python -P doctor_libraries.py NAME`), so it imports nothing of synora; the last line it prints is a
JSON object: `{"found": text}` or `{"error": text}`.
"""

from __future__ import annotations

import importlib
import importlib.metadata
import io
import json
import sys
from collections.abc import Callable

ATARI_100K = (
    "alien amidar assault asterix bank_heist battle_zone boxing breakout chopper_command crazy_climber demon_attack "
    "freeway frostbite gopher hero jamesbond kangaroo krull kung_fu_master ms_pacman pong private_eye qbert "
    "road_runner seaquest up_n_down"
).split()


def ale() -> str:
    """Import ale-py, and check each ROM's file against its checksum."""
    import ale_py
    from ale_py import roms

    present, why = set(), {}
    for name in {*roms.get_all_rom_ids(), *ATARI_100K}:
        try:
            if roms.get_rom_path(name) is not None:
                present.add(name)
        except OSError as error:  # absent, unreadable, or another file under its name
            why[name] = " ".join(str(error).split())
    absent = [name for name in ATARI_100K if name not in present]
    if absent:
        shown = ", ".join(absent[:3]) + (", ..." if len(absent) > 3 else "")
        raise OSError(f"{len(absent)} of 26 Atari-100k ROMs missing ({shown}): {why.get(absent[0], 'unknown ROM')}")
    return f"ale-py {ale_py.__version__}, {len(present)} ROMs, all 26 Atari-100k games"


def bsuite() -> str:
    """Import bsuite and count its experiments."""
    package = importlib.import_module("bsuite")
    sweep = importlib.import_module("bsuite.sweep")
    return f"bsuite {package.__version__}, {len(sweep.SWEEP)} experiments"


def video() -> str:
    """Encode one frame in memory with PyAV: h264, or mpeg4 where the build has no h264 encoder."""
    import av

    problems = []
    for codec in ("libx264", "h264", "mpeg4"):
        try:
            with av.open(io.BytesIO(), "w", format="mp4") as container:
                stream = container.add_stream(codec, rate=30)
                stream.width, stream.height, stream.pix_fmt = 64, 64, "yuv420p"
                for packet in (*stream.encode(av.VideoFrame(64, 64, "yuv420p")), *stream.encode()):
                    container.mux(packet)
            return f"PyAV {av.__version__}, encoder {codec}"
        except (av.FFmpegError, ValueError) as error:
            problems.append(f"{codec}: {error}")
    raise OSError(f"PyAV {av.__version__} has no working encoder ({'; '.join(problems)})")


def plot() -> str:
    """Import matplotlib with the backend that needs no display."""
    import matplotlib
    from matplotlib.backends import backend_agg  # noqa: F401

    return f"matplotlib {matplotlib.__version__}"


def play() -> str:
    """Import pygame and tell pygame-ce from the original, which lacks calls that `synora play` uses."""
    import pygame

    if not getattr(pygame, "IS_CE", False):
        raise ImportError(f"pygame {pygame.version.ver} is installed in the place of pygame-ce")
    return f"pygame-ce {pygame.version.ver}"


def nvml() -> str:
    """Initialise NVML and count the GPUs that it sees."""
    pynvml = importlib.import_module("pynvml")
    version = importlib.metadata.version("nvidia-ml-py")
    try:
        pynvml.nvmlInit()
    except (pynvml.NVMLError_LibraryNotFound, pynvml.NVMLError_DriverNotLoaded):
        return f"nvidia-ml-py {version}; no NVIDIA driver on this machine to ask"
    return f"nvidia-ml-py {version}, driver {pynvml.nvmlSystemGetDriverVersion()}, {pynvml.nvmlDeviceGetCount()} GPU(s)"


LIBRARIES: dict[str, tuple[str, Callable[[], str]]] = {
    "ale": ("ale_py", ale),
    "bsuite": ("bsuite", bsuite),
    "video": ("av", video),
    "plot": ("matplotlib", plot),
    "play": ("pygame", play),
    "nvml": ("pynvml", nvml),
}


def main(name: str) -> None:
    """Try the library `name` and print the finding as the last line."""
    module, check = LIBRARIES[name]
    try:
        finding = {"found": check()}
    except ModuleNotFoundError as error:
        # Another missing module than the library itself means a broken installation.
        finding = {"error": f"{module} is not installed" if error.name == module else f"{module}: {error}"}
    except Exception as error:  # noqa: BLE001 -- whatever a broken library raises is the finding
        finding = {"error": f"{type(error).__name__}: {error}"}
    print("\n" + json.dumps(finding))


if __name__ == "__main__":
    main(sys.argv[1])
