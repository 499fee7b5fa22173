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
from math import prod
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import flop_registry, sdpa_backward_flop_count, sdpa_flop_count, shape_wrapper

aten = torch.ops.aten

# Data movement, reductions, normalisations and the like: no products, so 0 FLOPs by the convention above. Pointwise
# operators and views are recognised by their tags and need no entry.
NOT_COUNTED = frozenset(
    """
    _adaptive_avg_pool2d _assert_async _assert_tensor_metadata _embedding_bag _fused_rms_norm _local_scalar_dense
    _log_softmax _native_batch_norm_legit _pin_memory _reshape_alias _softmax _thnn_fused_gru_cell
    _thnn_fused_lstm_cell _to_copy _unsafe_index _unsafe_index_put _unsafe_view _weight_norm_interface all amax amin
    aminmax any arange argmax argmin argsort as_strided avg_pool2d bernoulli binary_cross_entropy
    binary_cross_entropy_with_logits bincount broadcast_tensors bucketize cat clone col2im constant_pad_nd
    contiguous copy count_nonzero cudnn_batch_norm cummax cumprod cumsum detach diagonal diagonal_scatter embedding
    embedding_dense empty empty_like empty_permuted empty_strided equal expand exponential eye fill flip full
    full_like gather grid_sampler_2d hardswish huber_loss im2col index index_add index_copy index_put index_select
    isin item l1_loss lift_fresh lift_fresh_copy linalg_vector_norm linspace log_sigmoid logcumsumexp logsumexp
    masked_fill masked_scatter max max_pool2d_with_indices mean median min miopen_batch_norm mse_loss msort
    multinomial nansum native_batch_norm native_dropout native_group_norm native_layer_norm new_empty
    new_empty_strided new_full new_ones new_zeros nll_loss nll_loss2d nonzero norm normal one_hot ones ones_like
    pixel_shuffle pixel_unshuffle pow prod rand rand_like randint randint_like randn randn_like random randperm
    reflection_pad1d reflection_pad2d repeat repeat_interleave replication_pad2d resize_ roll scalar_tensor scatter
    scatter_add scatter_reduce select_scatter set_ slice_scatter smooth_l1_loss sort split_with_sizes
    split_with_sizes_copy squeeze stack std std_mean sum take_along_dim topk tril triu uniform unique_consecutive
    unique_dim unsafe_split unsafe_split_with_sizes unsqueeze upsample_bicubic2d upsample_bilinear2d
    upsample_nearest2d var var_mean where zero zeros zeros_like
    """.split()
)


# Formulas see shapes where the operator has tensors, as torch's own do (torch.utils.flop_counter).


def _cpu_attention_flops(query: Any, key: Any, value: Any, *args: Any, **kwargs: Any) -> int:
    """CPU flash attention: two products, query x key and weights x value."""
    return int(sdpa_flop_count(query, key, value))


def _cpu_attention_backward_flops(grad: Any, query: Any, key: Any, value: Any, *args: Any, **kwargs: Any) -> int:
    """Its backward: five products, one of them recomputed from the forward pass."""
    return int(sdpa_backward_flop_count(grad, query, key, value))


def _vector_product_flops(*shapes: Any, **kwargs: Any) -> int:
    """`mv`, `dot`, `addmv`: two for each element of the largest operand."""
    return 2 * max(prod(shape) for shape in shapes if isinstance(shape, torch.Size))


def _outer_product_flops(start: Any, left: Any, right: Any, *args: Any, **kwargs: Any) -> int:
    """`addr`: two for each element of the outer product."""
    return 2 * prod(left) * prod(right)


def _mkldnn_rnn_flops(inputs: Any, input_weight: Any, state_weight: Any, *args: Any, **kwargs: Any) -> int:
    """One layer and direction of a CPU LSTM: both weight matrices meet every vector of the sequence."""
    return 2 * (prod(inputs) // inputs[-1]) * (prod(input_weight) + prod(state_weight))


def _mkldnn_rnn_backward_flops(*args: Any, **kwargs: Any) -> int:
    """Its backward: gradients of inputs and of weights, a product each."""
    return 2 * _mkldnn_rnn_flops(*args)


def _cudnn_rnn_flops(inputs: Any, weights: Any, *args: Any, **kwargs: Any) -> int:
    """A whole cuDNN RNN: every weight matrix meets every vector of the sequence once."""
    return 2 * (prod(inputs) // inputs[-1]) * sum(prod(weight) for weight in weights if len(weight) == 2)


def _cudnn_rnn_backward_flops(*args: Any, **kwargs: Any) -> int:
    """Its backward: gradients of inputs and of weights, a product each."""
    return 2 * _cudnn_rnn_flops(*args)


_EXTRA_FORMULAS: dict[str, Callable[..., int]] = {
    "mv": _vector_product_flops,
    "dot": _vector_product_flops,
    "vdot": _vector_product_flops,
    "addmv": _vector_product_flops,
    "addr": _outer_product_flops,
    "_scaled_dot_product_flash_attention_for_cpu": _cpu_attention_flops,
    "_scaled_dot_product_flash_attention_for_cpu_backward": _cpu_attention_backward_flops,
    "mkldnn_rnn_layer": _mkldnn_rnn_flops,
    "mkldnn_rnn_layer_backward": _mkldnn_rnn_backward_flops,
    "_cudnn_rnn": _cudnn_rnn_flops,
    "_cudnn_rnn_backward": _cudnn_rnn_backward_flops,
}


def _formulas() -> dict[Any, Callable[..., int]]:
    """Return torch's formulas and ours for what torch's counter takes as 0, keyed by operator."""
    ours = {
        getattr(aten, name): shape_wrapper(formula) for name, formula in _EXTRA_FORMULAS.items() if hasattr(aten, name)
    }
    return {**flop_registry, **ours}


class _Counter(TorchDispatchMode):
    """Adds up the FLOPs of every operator, and remembers those with neither a formula nor a reason to count 0.

    torch's own FlopCounterMode also tracks modules and compiled code, for which it imports the compiler: seconds for a
    figure that is not used here.
    """

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        # True would import the compiler at the first operator, only to keep it from tracing this method. Operators are
        # counted on the eager module, so it never gets here.
        return False

    def __init__(self) -> None:
        super().__init__()
        self._formulas = _formulas()
        self._free: dict[Any, bool] = {}
        self.flops = 0
        self.uncounted: Counter[str] = Counter()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        packet = getattr(func, "overloadpacket", func)  # a higher-order operator has no overloads
        formula = self._formulas.get(packet)
        if formula is not None:
            out = func(*args, **kwargs)
            self.flops += int(formula(*args, **kwargs, out_val=out))
            return out
        if func not in self._free:
            # Under inference_mode composite operators arrive whole: their parts are what counts.
            if hasattr(func, "decompose"):
                with self:
                    parts = func.decompose(*args, **kwargs)
                if parts is not NotImplemented:
                    return parts
            self._free[func] = packet is not func and _is_free(func)
        if not self._free[func]:
            self.uncounted[str(packet)] += 1
        return func(*args, **kwargs)


def _is_free(func: Any) -> bool:
    """Return whether an operator counts 0 by convention: pointwise, a view, in `NOT_COUNTED`, or a variant of one."""
    if torch.Tag.pointwise in func.tags or func.is_view:
        return True
    namespace, _, name = func._schema.name.partition("::")
    if namespace != "aten":
        return namespace in {"prim", "profiler"}
    if name.startswith(("_foreach_", "_fused_adam", "sym_", "is_", "_is_")):
        return True
    # In-place and backward variants carry no tag of their own; they are as cheap as the operator they belong to.
    bases = {name.removesuffix(suffix) for suffix in ("_", "_forward", "_backward", "_backward_data", "_backward_impl")}
    return any(base in NOT_COUNTED or _is_pointwise_or_view(base) for base in bases)


def _is_pointwise_or_view(name: str) -> bool:
    packet = getattr(aten, name, None)
    overloads = [] if packet is None else [getattr(packet, overload) for overload in packet.overloads()]
    return any(torch.Tag.pointwise in overload.tags or overload.is_view for overload in overloads)


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
    with _Counter() as counter:
        call()
    return FlopCount(counter.flops, dict(sorted(counter.uncounted.items())))
