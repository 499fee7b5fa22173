"""Which results of an earlier run still hold, so that a repeated command does only what is left."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

from synora.core.result import Result


def still_holds(result: Result) -> bool:
    """Return whether doing the job again would bring nothing new.

    An evaluation holds when no game failed, the rules (with the simulator's version) are the same today, and its
    checkpoint is the one that was evaluated, byte for byte. A training run holds when its folder still says that it is
    finished at that step. Of other kinds nothing holds: a measurement is done again.
    """
    body: Any = result.body
    if result.status != "ok":
        return False
    if result.job.kind == "train":
        return _is_finished(Path(str(result.job.params["folder"])), body)
    if result.job.kind != "returns" or body.get("episodes_failed") or body.get("mean") is None:
        return False
    if _rules_of(result) != result.provenance.protocol:
        return False
    checkpoint = body.get("checkpoint")
    if checkpoint is None:
        return result.job.params.get("checkpoint") is None
    recorded = checkpoint.get("sha256")
    return recorded is not None and recorded == checkpoint_digest(Path(checkpoint["path"]))


def checkpoint_digest(path: Path) -> str | None:
    """Return the sha256 of an exported file, or of the manifest of the checkpoint that a folder is or holds.

    None when there is no checkpoint. The manifest has the digests of all the checkpoint's files.
    """
    from synora.runtime.checkpoint import CHECKPOINTS, latest
    from synora.runtime.manifest import MANIFEST

    if path.is_dir():
        found = path if (path / MANIFEST).is_file() else latest(path / CHECKPOINTS) or latest(path)
        if found is None:
            return None
        path = found / MANIFEST
    try:
        with open(path, "rb") as stream:
            return hashlib.file_digest(stream, "sha256").hexdigest()
    except OSError:
        return None


def _rules_of(result: Result) -> str | None:
    """Return the fingerprint of the rules under which the job would run today; None for an adapter with its own."""
    from synora.benchmarks.handler import environment, load_adapter
    from synora.benchmarks.settings import ReturnsParams

    params: Any = result.job.params
    settings = ReturnsParams(**params)
    protocol = environment(settings, load_adapter(settings.agent))["protocol"]
    return protocol["fingerprint"] if protocol else None


def _is_finished(folder: Path, body: Any) -> bool:
    from synora.core.errors import FileError
    from synora.runtime.checkpoint import CHECKPOINTS, latest
    from synora.runtime.run_folder import finished_marker

    try:
        marker = finished_marker(folder)
    except FileError:
        return False
    newest = latest(folder / CHECKPOINTS)
    if marker is None or newest is None:
        return False
    return bool(marker["step"] == body["step"] and newest.name == Path(str(body["checkpoint"])).name)
