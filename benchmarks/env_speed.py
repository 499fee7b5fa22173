"""Environment speed: one Atari environment against Gymnasium's preprocessing, and vector stepping on two cores.

The reference is `gymnasium.wrappers.AtariPreprocessing`, which equals DIAMOND's wrapper bit for bit; it needs OpenCV,
which Synora does not: `uv pip install --target /tmp/cv --no-deps opencv-python-headless`, then
`PYTHONPATH=/tmp/cv python benchmarks/env_speed.py`. All figures come in alternating windows of the same run. `R` is
the time of a step divided by the time of one 2048 x 2048 x 2048 float32 matrix product on two threads.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import statistics
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from synora.envs.factory import make_env, make_vector_env

GAMES = ("Pong", "Breakout")
# shared/speed/README.md: the authors' steps a second, on a machine whose matrix product took 43.5 ms.
AUTHORS = {"Pong": 2790.0, "Breakout": 2216.0}
AUTHORS_PRODUCT = 0.0435


def product_seconds() -> float:
    """Return the best time of one float32 matrix product of size 2048."""
    import torch

    torch.set_num_threads(2)
    a = torch.randn(2048, 2048)
    times = []
    for _ in range(8):
        start = time.perf_counter()
        a @ a
        times.append(time.perf_counter() - start)
    return min(times)


def ours(game: str) -> Callable[[int], float]:
    """Return a function that steps our environment n times and returns the seconds."""
    env = make_env(game, seed=0)
    env.reset()
    rng = np.random.default_rng(0)

    def run(steps: int) -> float:
        actions = rng.integers(0, env.action_space.n, steps).tolist()  # type: ignore[union-attr]
        start = time.perf_counter()
        for action in actions:
            result = env.step(action)
            if result.terminated or result.truncated:
                env.reset()
        return time.perf_counter() - start

    return run


def reference(game: str) -> Callable[[int], float] | None:
    """Return the same for Gymnasium's preprocessing, or None without OpenCV."""
    if importlib.util.find_spec("cv2") is None:
        return None
    import ale_py
    import gymnasium
    from gymnasium.wrappers import AtariPreprocessing

    gymnasium.register_envs(ale_py)
    made: Any = gymnasium.make(f"{game}NoFrameskip-v4")
    env: Any = AtariPreprocessing(made, noop_max=30, frame_skip=4, screen_size=64, grayscale_obs=False)
    env.reset(seed=0)
    rng = np.random.default_rng(0)

    def run(steps: int) -> float:
        actions = rng.integers(0, env.action_space.n, steps).tolist()
        start = time.perf_counter()
        for action in actions:
            _, _, terminated, truncated, _ = env.step(action)
            if terminated or truncated:
                env.reset()
        return time.perf_counter() - start

    return run


def vector(game: str, num_envs: int, workers: int) -> Callable[[int], float]:
    """Return a function that takes n steps in all, over a vector environment."""
    envs = make_vector_env(game, num_envs, seed=0, workers=workers)
    envs.reset()
    rng = np.random.default_rng(0)

    def run(steps: int) -> float:
        actions = rng.integers(0, envs.action_space.n, (steps // num_envs, num_envs))  # type: ignore[union-attr]
        start = time.perf_counter()
        for action in actions:
            result = envs.step(action)
            if result.done.any():
                envs.reset(result.done)
        return (time.perf_counter() - start) * steps / actions.size

    return run


def main() -> None:
    """Print a JSON object with the medians of each figure."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--windows", type=int, default=7)
    parser.add_argument("--steps", type=int, default=600, help="steps a window")
    parser.add_argument("--num-envs", type=int, default=16)
    parser.add_argument("--workers", type=int, default=2)
    arguments = parser.parse_args()
    report: dict[str, Any] = {"load_before": os.getloadavg()[0], "product_ms": [product_seconds() * 1e3]}
    for game in GAMES:
        runs = {"ours": ours(game), "gymnasium": reference(game)}
        runs["vector"] = vector(game, arguments.num_envs, arguments.workers)
        times: dict[str, list[float]] = {name: [] for name, run in runs.items() if run is not None}
        for _ in range(arguments.windows):
            for name, seconds in times.items():
                run = runs[name]
                assert run is not None
                seconds.append(run(arguments.steps) / arguments.steps)
        report[game] = {f"{name}_us": round(statistics.median(seconds) * 1e6, 1) for name, seconds in times.items()}
        # Ratios of neighbouring windows: what else ran on the machine hit both.
        for name in ("gymnasium", "vector"):
            if name in times:
                ratios = [a / b for a, b in zip(times[name], times["ours"], strict=True)]
                ratio = statistics.median(ratios)
                report[game]["faster_than_gymnasium" if name == "gymnasium" else "vector_gain"] = round(
                    ratio if name == "gymnasium" else 1 / ratio, 2
                )
    report["product_ms"].append(product_seconds() * 1e3)
    product = min(report["product_ms"]) / 1e3
    for game in GAMES:
        report[game]["R"] = round(report[game]["ours_us"] / 1e6 / product, 5)
        report[game]["authors_R"] = round(1 / AUTHORS[game] / AUTHORS_PRODUCT, 5)
        report[game]["faster_than_authors_by_R"] = round(report[game]["authors_R"] / report[game]["R"], 2)
    report["load_after"] = os.getloadavg()[0]
    print(json.dumps(report, indent=2))


if __name__ == "__main__":
    main()
