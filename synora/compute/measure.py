"""Measure one bench case in this process. The executor gives every case a process of its own."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn

from synora.compute.calibrate import Ceiling, best_of, calibrate
from synora.compute.case import BenchCase
from synora.compute.catalog import find_case, load_cases
from synora.compute.flops import count_flops
from synora.compute.memory import PeakMemory
from synora.compute.settings import ComputeParams, accepts_image
from synora.core.errors import JobSkipped, SynoraError
from synora.runtime.device import autocast_context, device_facts, resolve_device, set_fp32_precision
from synora.runtime.timing import Clock, clock_for, measure, time_once

Report = Callable[[str], None]
COUNT_FIELDS = ("flops", "macs", "flops_lower_bound", "uncounted_operators")


class Workload:
    """A built case on its device, and the three calls that are timed.

    Args:
        case: what was asked for.
        params: scale, device, precision.
        device: where it runs.

    Raises:
        SynoraError: the builder or the input function returned something that cannot be measured.
    """

    def __init__(self, case: BenchCase, params: ComputeParams, device: torch.device) -> None:
        self.case, self.params, self.device = case, params, device
        torch.manual_seed(params.seed)
        module = case.build(params.scale)
        if not isinstance(module, nn.Module):
            raise SynoraError(
                f"the builder of {case.name} returned {type(module).__name__}, expected a torch.nn.Module."
            )
        torch.manual_seed(params.seed)
        self.args, self.kwargs = _as_call(case, case.inputs(params.scale), device)
        self.eager = module.to(device)
        self.module: Callable[..., Any] = torch.compile(self.eager) if params.compile else self.eager
        self.optimizer: torch.optim.Optimizer | None = None
        self._scaler = torch.amp.GradScaler(device.type, enabled=params.dtype == "fp16" and device.type == "cuda")

    @contextmanager
    def uncompiled(self) -> Iterator[None]:
        """Call the eager module inside, whatever `--compile` says (operators are counted on it)."""
        compiled, self.module = self.module, self.eager
        try:
            yield
        finally:
            self.module = compiled

    def forward(self) -> Any:
        """Run the module in evaluation mode without gradients and return its output."""
        self.eager.eval()
        with torch.no_grad(), autocast_context(self.device, self.params.dtype):
            return self.module(*self.args, **self.kwargs)

    def forward_backward(self) -> torch.Tensor:
        """Run forward and backward in training mode and return the loss; gradients are left in place."""
        self.eager.train()
        self.eager.zero_grad(set_to_none=True)
        with autocast_context(self.device, self.params.dtype):
            output = self.module(*self.args, **self.kwargs)
            loss = self.case.loss(output) if self.case.loss is not None else default_loss(output)
        self._scaler.scale(loss).backward()
        return loss.detach()

    def train_step(self) -> torch.Tensor:
        """Run a whole training step: forward, backward, clipping, optimiser; return the loss."""
        optimizer = self.optimizer = self.optimizer or self._make_optimizer()
        loss = self.forward_backward()
        self._scaler.unscale_(optimizer)
        if self.case.clip_norm is not None:
            for group in optimizer.param_groups:
                nn.utils.clip_grad_norm_(group["params"], self.case.clip_norm)
        if self._scaler.is_enabled():
            self._scaler.step(optimizer)
            self._scaler.update()
        else:
            with torch.no_grad():
                plain_step(optimizer)(optimizer)
        return loss

    def _make_optimizer(self) -> torch.optim.Optimizer:
        if self.case.optimizer is not None:
            return self.case.optimizer(self.eager)
        return torch.optim.Adam(parameter for parameter in self.eager.parameters() if parameter.requires_grad)


def plain_step(optimizer: torch.optim.Optimizer) -> Callable[[torch.optim.Optimizer], Any]:
    """Return the optimiser's step without torch's wrappers (profiler hook, graph break for the compiler).

    The outer wrapper imports torch's compiler at the first step, which takes longer than torch itself; the step's
    arithmetic is the same. Call it under `no_grad`, which is the other thing the wrapper does.
    """
    return inspect.unwrap(type(optimizer).step)


def run(raw: dict[str, Any], report: Report) -> tuple[dict[str, Any], dict[str, Any]]:
    """Measure the case that a compute job names; the handler of job kind "compute".

    Args:
        raw: fields of `ComputeParams`.
        report: called with each phase.

    Returns:
        The result body and the facts of the device.

    Raises:
        JobSkipped: the case cannot be built at this image size.
        SynoraError: the case built nothing, or its output, loss or gradients are not finite.
    """
    params = ComputeParams(**raw)
    device = resolve_device(params.device)
    torch.set_num_threads(params.threads)
    set_fp32_precision(params.tf32)
    case = find_case(load_cases(params.source), params.case)
    if not accepts_image(case, params.image_size):
        sizes = ", ".join(map(str, case.image_sizes or ()))
        raise JobSkipped(f"{case.name} takes image size {sizes}, not {params.image_size}.")

    items = case.items(params.scale)
    if not isinstance(items, int) or isinstance(items, bool) or items < 1:
        raise SynoraError(f"the items function of {case.name} returned {items!r}, expected a whole number from 1.")

    report("calibrating")
    clock = clock_for(device)
    before = calibrate(device, params.dtype, params.tf32, clock)
    memory = PeakMemory(device)
    report("building")
    memory.start()
    work = Workload(case, params, device)
    observe = Observer(work, clock, memory, report)
    modes = {"forward": observe.mode("forward", work.forward)}
    if params.backward and case.trains:
        memory.start()
        modes["forward_backward"] = observe.mode("forward_backward", work.forward_backward)
        memory.start()
        # The optimiser is element-wise: by the convention a step has the FLOPs of its backward pass.
        counted = {name: modes["forward_backward"][name] for name in COUNT_FIELDS}
        modes["train_step"] = observe.mode("train_step", work.train_step, counted)
    report("calibrating")
    ceiling = best_of(before, calibrate(device, params.dtype, params.tf32, clock))
    _add_ratios(modes, items, ceiling)
    body = {
        "case": case.name,
        "family": case.family,
        "heavy": case.heavy,
        "description": case.description,
        "unit": case.unit,
        "items_per_call": items,
        "parameters": sum(p.numel() for p in work.eager.parameters()),
        "trainable_parameters": sum(p.numel() for p in work.eager.parameters() if p.requires_grad),
        "modes": modes,
        "calibration": ceiling.as_dict(),
    }
    return body, device_facts(device)


class Observer:
    """Takes the figures of one mode after another of a workload.

    Args:
        work: what is measured.
        clock: of its device.
        memory: started before the first mode's work began, building included, and again before each later mode.
        report: called with each phase.
    """

    def __init__(self, work: Workload, clock: Clock, memory: PeakMemory, report: Report) -> None:
        self._work, self._clock, self._memory, self._report = work, clock, memory, report

    def mode(self, name: str, call: Callable[[], Any], counted: dict[str, Any] | None = None) -> dict[str, Any]:
        """Run, check, time and count one mode.

        Args:
            name: "forward", "forward_backward" or "train_step".
            call: what it runs.
            counted: the mode's operator counts (`COUNT_FIELDS`), where they are known already.
        """
        params = self._work.params
        self._report(f"{name}: first call")
        outputs: list[Any] = []
        first_call_ms = time_once(lambda: outputs.append(call()), self._clock)
        _check_finite(name, outputs.pop(), self._work)
        self._report(f"{name}: timing")
        timing = measure(call, self._clock, first_call_ms=first_call_ms, warmup=params.warmup, iters=params.iters)
        peaks = self._memory.read()
        if counted is None:
            self._report(f"{name}: counting")
            counted = self._count(call)
        return {"timing": timing.summary(), "memory": peaks, **counted}

    def _count(self, call: Callable[[], Any]) -> dict[str, Any]:
        with self._work.uncompiled():
            count = count_flops(call)
        values = (count.flops, count.macs, count.lower_bound, count.uncounted)
        return dict(zip(COUNT_FIELDS, values, strict=True))


def _add_ratios(modes: dict[str, dict[str, Any]], items: int, ceiling: Ceiling) -> None:
    """Add throughput, achieved FLOP/s, its share of the ceiling, and R to each mode."""
    for mode in modes.values():
        seconds = mode["timing"]["median_ms"] / 1e3
        mode["items_per_second"] = items / seconds
        mode["achieved_flops_per_second"] = mode["flops"] / seconds
        share = mode["flops"] / seconds / ceiling.flops_per_second
        mode["ceiling_share"] = share if share <= 1 else None
        if share > 1:
            mode["missing"] = {"ceiling_share": f"the case ran at {share:.3g} times the rate of the ceiling's product"}
        mode["R"] = mode["timing"]["median_ms"] / ceiling.reference_ms


def _as_call(case: BenchCase, inputs: Any, device: torch.device) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Turn what `case.inputs` returned into positional and keyword arguments on the device."""
    if isinstance(inputs, torch.Tensor):
        inputs = (inputs,)
    moved = _to(inputs, device)
    if isinstance(moved, dict):
        return (), moved
    if isinstance(moved, tuple):
        return moved, {}
    raise SynoraError(
        f"the inputs function of {case.name} returned {type(inputs).__name__}, expected a tensor, a tuple or a dict."
    )


def _to(value: Any, device: torch.device) -> Any:
    if isinstance(value, torch.Tensor):
        return value.to(device)
    if isinstance(value, dict):
        return {key: _to(item, device) for key, item in value.items()}
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return type(value)(*(_to(item, device) for item in value))
    if isinstance(value, list | tuple):
        return type(value)(_to(item, device) for item in value)
    return value


def _floats(value: Any) -> Iterator[torch.Tensor]:
    """Yield every floating-point tensor in a nest of tuples, lists, dicts and dataclasses."""
    if isinstance(value, torch.Tensor):
        if value.is_floating_point():
            yield value
    elif isinstance(value, dict):
        for item in value.values():
            yield from _floats(item)
    elif isinstance(value, list | tuple):
        for item in value:
            yield from _floats(item)
    elif hasattr(value, "__dataclass_fields__"):
        for name in value.__dataclass_fields__:
            yield from _floats(getattr(value, name))


def default_loss(output: Any) -> torch.Tensor:
    """Return the output when it is a scalar tensor, otherwise the sum of the mean squares of its float tensors.

    Raises:
        SynoraError: there is no floating-point tensor in the output.
    """
    tensors = list(_floats(output))
    if not tensors:
        raise SynoraError("the module's output holds no floating-point tensor to make a loss from; give the case one.")
    if len(tensors) == 1 and tensors[0].ndim == 0:
        return tensors[0]
    return torch.stack([tensor.float().square().mean() for tensor in tensors]).sum()


def _check_finite(name: str, output: Any, work: Workload) -> None:
    """Refuse to report a cost for a computation that went wrong."""
    what = "output" if name == "forward" else "loss"
    if not all(bool(torch.isfinite(tensor).all()) for tensor in _floats(output)):
        raise SynoraError(f"{name}: the {what} is not finite (NaN or infinity).")
    if name != "forward":
        for key, parameter in work.eager.named_parameters():
            if parameter.grad is not None and not bool(torch.isfinite(parameter.grad).all()):
                raise SynoraError(f"{name}: the gradient of {key} is not finite (NaN or infinity).")
