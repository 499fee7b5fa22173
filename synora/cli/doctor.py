"""`synora doctor`: what this machine has, what is missing, and the one command that fixes each."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from pathlib import Path

from synora.cli.doctor_checks import Check, all_checks
from synora.cli.doctor_process import kill_all
from synora.cli.doctor_system import Finding
from synora.core.errors import EXIT_FAILED, EXIT_OK


def doctor(json_output: bool, out_dir: Path) -> int:
    """Print the report and return the exit code: 0 when everything required is there, otherwise 1.

    Args:
        json_output: print one JSON object `{"ok", "checks"}` instead of lines.
        out_dir: the results folder to try; it is not created.
    """
    found = checks(out_dir)
    ok = all(check.status == "ok" for check in found if check.required)
    if json_output:
        print(json.dumps({"ok": ok, "checks": [asdict(check) for check in found]}, indent=2))
    else:
        _print_lines(found)
    return EXIT_OK if ok else EXIT_FAILED


def checks(out_dir: Path) -> list[Check]:
    """Run every check, the slow ones side by side, and return the report in a fixed order. Never raises."""
    plan = all_checks(out_dir)
    with ThreadPoolExecutor(max_workers=len(plan)) as pool:
        try:
            futures = [pool.submit(_isolated, *item) for item in plan]
            return [check for future in futures for check in future.result()]
        except KeyboardInterrupt:
            kill_all()
            raise


def _isolated(name: str, required: bool, check: Callable[[], Finding | list[Check]]) -> list[Check]:
    """Run one check; a check that fails in a way of its own becomes a `missing` line that says so."""
    try:
        result = check()
    except Exception as error:  # noqa: BLE001 -- reported as the check's finding, the others go on
        result = ("missing", f"the check itself failed: {type(error).__name__}: {error}", "synora doctor --json")
    if isinstance(result, tuple):
        status, found, fix = result
        result = [Check(name=name, status=status, required=required, found=found, fix=fix)]
    return [
        Check(name=one.name, status=one.status, required=one.required, found=_one_line(one.found), fix=one.fix)
        for one in result
    ]


def _print_lines(found: list[Check]) -> None:
    """Print aligned lines without colour: they go into logs and issues."""
    width = max(len(check.name) for check in found)
    lines = []
    for check in found:
        optional = "" if check.required or check.status == "ok" else " (optional)"
        lines.append(f"{check.status:<8} {check.name:<{width}}  {check.found}{optional}")
        if check.fix is not None:
            lines.append(f"{'':<8} {'':<{width}}  fix: {check.fix}")
    missing = [check for check in found if check.status != "ok"]
    required = [check.name for check in missing if check.required]
    verdict = f"Required but missing: {', '.join(required)}." if required else "Everything required is here."
    lines.append(f"{verdict} {len(missing) - len(required)} optional item(s) missing.")
    text = "\n".join(lines)
    # A terminal in an old encoding shows an escape, where print would raise.
    encoding = sys.stdout.encoding or "utf-8"
    print(text.encode(encoding, "backslashreplace").decode(encoding))


def _one_line(text: str) -> str:
    """Return `text` in one line without colours and control characters (programs colour what they print)."""
    plain = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", text)
    return "".join(character for character in " ".join(plain.split()) if character.isprintable())
