"""The job spec: one unit of work as plain JSON, the same on a laptop and in a SLURM array.

A spec says what to do and nothing about where or when it runs. Its id is a readable slug plus a digest of its content,
so the same work has the same id in every process and on every machine.
"""

from __future__ import annotations

import hashlib
import json
import re
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, JsonValue

JobKind = Literal["train", "returns", "compute"]


class JobSpec(BaseModel):
    """One job: its kind, a readable name and the parameters its handler takes.

    Attributes:
        kind: "train" (config to checkpoint), "returns" (checkpoint x env x seed to episode returns) or "compute"
            (a `BenchCase` to parameters, FLOPs, latency, throughput, memory).
        name: what people call it; part of the id.
        params: JSON values only; a callable or a tensor is refused.
    """

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, allow_inf_nan=False)

    kind: JobKind
    name: str = Field(min_length=1, max_length=120)
    params: dict[str, JsonValue] = Field(default_factory=dict)

    @property
    def job_id(self) -> str:
        """A file-name-safe slug of the name, a dash, and ten hex digits of the content's SHA-256."""
        content = json.dumps(self.model_dump(mode="json"), sort_keys=True, separators=(",", ":"), allow_nan=False)
        slug = re.sub(r"[^a-z0-9]+", "-", self.name.lower()).strip("-")[:60] or self.kind
        return f"{slug}-{hashlib.sha256(content.encode()).hexdigest()[:10]}"
