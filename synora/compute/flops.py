"""FLOPs of a call, counted operator by operator.

Convention: a multiply-add is two FLOPs (and one MAC). Products count: matrix products, convolutions, attention, forward
and backward. Element-wise operations, reductions, normalisations, random numbers and data movement do not count, as in
the literature. An operator that does arithmetic of a kind we have no formula for is never silently taken as 0: it is
listed, and the count is then a lower bound.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import FlopCounterMode, sdpa_backward_flop_count, sdpa_flop_count

aten = torch.ops.aten

# Data movement, reductions, normalisations and the like: no products, so 0 FLOPs by the convention above. Pointwise
# operators and views are recognised by their tags and need no entry.
NOT_COUNTED = frozenset(
    """
    _adaptive_avg_pool2d _adaptive_avg_pool2d_backward _assert_async _assert_tensor_metadata _embedding_bag
    _foreach_addcdiv_ _foreach_addcmul_ _foreach_add_ _foreach_copy_ _foreach_div_ _foreach_lerp_ _foreach_mul_
    _foreach_norm _foreach_sqrt _foreach_zero_ _fused_adam_ _fused_adamw_ _fused_rms_norm _fused_rms_norm_backward
    _local_scalar_dense _log_softmax _log_softmax_backward_data _native_batch_norm_legit _pin_memory _reshape_alias
    _softmax _softmax_backward_data _thnn_fused_gru_cell _thnn_fused_gru_cell_backward _thnn_fused_lstm_cell
    _thnn_fused_lstm_cell_backward_impl _to_copy _unsafe_view all amax amin aminmax any arange argmax argmin argsort
    as_strided avg_pool2d avg_pool2d_backward bernoulli bernoulli_ bincount broadcast_tensors bucketize cat clone
    col2im constant_pad_nd contiguous copy copy_ count_nonzero cudnn_batch_norm cudnn_batch_norm_backward cummax
    cumprod cumsum detach detach_ diagonal_scatter embedding embedding_dense_backward empty empty_like empty_permuted
    empty_strided equal exponential_ eye fill fill_ flip full full_like gather grid_sampler_2d
    grid_sampler_2d_backward im2col index index_add index_add_ index_copy index_copy_ index_put index_put_
    index_select isin item lift_fresh lift_fresh_copy linalg_vector_norm linspace logcumsumexp logsumexp masked_fill
    masked_fill_ masked_scatter max max_pool2d_with_indices max_pool2d_with_indices_backward mean median min
    miopen_batch_norm msort multinomial nansum native_batch_norm native_batch_norm_backward native_dropout
    native_dropout_backward native_group_norm native_group_norm_backward native_layer_norm
    native_layer_norm_backward new_empty new_empty_strided new_full new_ones new_zeros nll_loss2d_backward
    nll_loss2d_forward nll_loss_backward nll_loss_forward nonzero norm normal normal_ one_hot ones ones_like
    pixel_shuffle pixel_unshuffle pow prod rand rand_like randint randint_like randn randn_like random_ randperm
    reflection_pad1d reflection_pad2d reflection_pad2d_backward repeat repeat_interleave replication_pad2d
    replication_pad2d_backward resize_ roll scalar_tensor scatter scatter_ scatter_add scatter_add_ scatter_reduce
    scatter_reduce_ select_backward select_scatter set_ silu_backward slice_backward slice_scatter sort split_with_sizes
    split_with_sizes_copy stack std std_mean sum take_along_dim topk tril triu unfold_backward uniform uniform_
    unique_consecutive unique_dim upsample_bicubic2d upsample_bilinear2d upsample_bilinear2d_backward
    upsample_nearest2d upsample_nearest2d_backward var var_mean where zero zero_ zeros zeros_like
    """.split()
)


def _cpu_attention_flops(query: Any, key: Any, value: Any, *args: Any, out_val: Any = None, **kwargs: Any) -> int:
    """FLOPs of CPU flash attention: two products, (b, h, s_q, d) x (b, h, d, s_k) and back."""
    return int(sdpa_flop_count(query, key, value))


def _cpu_attention_backward_flops(
    grad: Any, query: Any, key: Any, value: Any, *args: Any, out_val: Any = None, **kwargs: Any
) -> int:
    """FLOPs of its backward: the five products flash attention needs, one of them recomputed."""
    return int(sdpa_backward_flop_count(grad, query, key, value))


def _vector_product_flops(*shapes: Any, out_val: Any = None, **kwargs: Any) -> int:
    """FLOPs of `mv`, `dot`, `addmv`: two for each element of the larger operand."""
    elements = [_numel(shape) for shape in shapes if isinstance(shape, torch.Size)]
    return 2 * max(elements)


def _outer_product_flops(start: Any, left: Any, right: Any, *args: Any, out_val: Any = None, **kwargs: Any) -> int:
    """FLOPs of `addr`: two for each element of the outer product."""
    return 2 * _numel(left) * _numel(right)


def _numel(shape: torch.Size) -> int:
    total = 1
    for size in shape:
        total *= int(size)
    return total


def extra_formulas() -> dict[Any, Callable[..., int]]:
    """Return formulas for operators that torch's counter takes as 0."""
    formulas: dict[Any, Callable[..., int]] = {
        aten.mv: _vector_product_flops,
        aten.dot: _vector_product_flops,
        aten.vdot: _vector_product_flops,
        aten.addmv: _vector_product_flops,
        aten.addr: _outer_product_flops,
    }
    for name, formula in (
        ("_scaled_dot_product_flash_attention_for_cpu", _cpu_attention_flops),
        ("_scaled_dot_product_flash_attention_for_cpu_backward", _cpu_attention_backward_flops),
    ):
        if hasattr(aten, name):
            formulas[getattr(aten, name)] = formula
    return formulas


class _Uncounted(TorchDispatchMode):
    """Counts operators for which there is neither a formula nor a reason to count 0."""

    def __init__(self, known: set[Any]) -> None:
        super().__init__()
        self._known = known
        self.names: Counter[str] = Counter()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        packet = func.overloadpacket
        if packet not in self._known and not _is_free(func):
            self.names[str(packet)] += 1
        return func(*args, **(kwargs or {}))


def _is_free(func: Any) -> bool:
    """Return whether an operator counts 0 by convention: pointwise, a view, or in `NOT_COUNTED`."""
    if torch.Tag.pointwise in func.tags or func.is_view:
        return True
    namespace, _, name = func._schema.name.partition("::")
    if namespace in {"prim", "profiler"}:
        return True
    if namespace != "aten":
        return False
    # In-place and out= variants of a pointwise operator carry no tag of their own.
    base = name.rstrip("_")
    functional = getattr(getattr(aten, base, None), "default", None) or getattr(getattr(aten, base, None), "Tensor", None)
    pointwise = functional is not None and torch.Tag.pointwise in functional.tags
    return name in NOT_COUNTED or pointwise or name.startswith(("_foreach_", "_fused_adam", "sym_", "is_"))


@dataclass(frozen=True)
class FlopCount:
    """FLOPs of one call.

    Attributes:
        flops: floating-point operations, a multiply-add counting as two.
        uncounted: operators without a formula -> how often they ran; when not empty, `flops` is a lower bound.
    """

    flops: int
    uncounted: dict[str, int]

    @property
    def macs(self) -> int:
        """Multiply-adds: half the FLOPs, since everything counted is a product."""
        return self.flops // 2

    @property
    def lower_bound(self) -> bool:
        """Whether something ran that could not be counted."""
        return bool(self.uncounted)


def count_flops(call: Callable[[], object]) -> FlopCount:
    """Run `call` once and count its FLOPs, backward passes inside it included."""
    counter = FlopCounterMode(display=False, custom_mapping=extra_formulas())
    uncounted = _Uncounted(set(counter.flop_registry))
    with counter, uncounted:
        call()
    return FlopCount(int(counter.get_total_flops()), dict(sorted(uncounted.names.items())))
