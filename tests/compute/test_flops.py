"""FLOPs against counts worked out by hand."""

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from synora.compute.flops import count_flops


def test_linear_layer_forward_and_backward() -> None:
    layer, x = nn.Linear(32, 48), torch.randn(5, 32, requires_grad=True)
    product = 2 * 5 * 32 * 48
    assert count_flops(lambda: layer(x)).flops == product
    # Backward: one product for the weight's gradient, one for the input's.
    assert count_flops(lambda: layer(x).sum().backward()).flops == 3 * product


def test_macs_are_half_the_flops() -> None:
    count = count_flops(lambda: torch.mm(torch.ones(3, 4), torch.ones(4, 5)))
    assert (count.flops, count.macs) == (120, 60)


def test_convolution() -> None:
    layer = nn.Conv2d(3, 8, kernel_size=4, stride=2)
    count = count_flops(lambda: layer(torch.randn(2, 3, 64, 64)))
    assert count.flops == 2 * 2 * 8 * 31 * 31 * 3 * 4 * 4


def test_transposed_convolution() -> None:
    layer = nn.ConvTranspose2d(8, 3, kernel_size=6, stride=2)
    count = count_flops(lambda: layer(torch.randn(2, 8, 30, 30)))
    assert count.flops == 2 * 2 * 30 * 30 * 8 * 3 * 6 * 6


def test_cpu_attention_is_not_zero() -> None:
    q = torch.randn(2, 4, 16, 32, requires_grad=True)
    forward = count_flops(lambda: F.scaled_dot_product_attention(q, q, q))
    assert forward.flops == 2 * (2 * 2 * 4 * 16 * 16 * 32)
    assert forward.uncounted == {}
    both = count_flops(lambda: F.scaled_dot_product_attention(q, q, q).sum().backward())
    # Flash attention's backward takes five products where the forward takes two.
    assert both.flops == pytest.approx(forward.flops * 3.5)


def test_lstm_on_the_cpu() -> None:
    lstm = nn.LSTM(8, 16)
    with torch.no_grad():
        count = count_flops(lambda: lstm(torch.randn(3, 2, 8)))
    assert count.flops == 2 * 3 * 2 * 4 * 16 * (8 + 16)
    assert not count.lower_bound


@pytest.mark.parametrize(
    ("call", "flops"),
    [
        (lambda: torch.mv(torch.ones(3, 4), torch.ones(4)), 24),
        (lambda: torch.dot(torch.ones(7), torch.ones(7)), 14),
        (lambda: torch.addr(torch.zeros(3, 4), torch.ones(3), torch.ones(4)), 24),
        (lambda: torch.einsum("bi,bj->ij", torch.ones(5, 3), torch.ones(5, 4)), 120),
        (lambda: torch.bmm(torch.ones(2, 3, 4), torch.ones(2, 4, 5)), 240),
    ],
)
def test_products_of_every_shape(call, flops: int) -> None:
    count = count_flops(call)
    assert (count.flops, count.uncounted) == (flops, {})


def test_autocast_counts_the_same() -> None:
    layer, x = nn.Linear(32, 48), torch.randn(5, 32)
    with torch.autocast("cpu", torch.bfloat16):
        assert count_flops(lambda: layer(x)).flops == 2 * 5 * 32 * 48


def test_inference_mode_counts_composite_operators() -> None:
    layer, x = nn.Linear(32, 48), torch.randn(5, 32)
    with torch.inference_mode():
        assert count_flops(lambda: layer(x)).flops == 2 * 5 * 32 * 48


def test_everyday_operators_are_not_called_uncounted() -> None:
    net = nn.Sequential(nn.Conv2d(3, 4, 3), nn.GroupNorm(2, 4), nn.SiLU(), nn.MaxPool2d(2), nn.Flatten(), nn.ELU())
    embedding = nn.Sequential(nn.Embedding(5, 8), nn.LayerNorm(8), nn.GELU(), nn.Dropout(0.1))

    def call() -> None:
        loss = net(torch.randn(2, 3, 8, 8)).square().mean() + embedding(torch.tensor([1, 2])).logsumexp(-1).sum()
        loss = loss + F.cross_entropy(torch.randn(2, 3, requires_grad=True), torch.tensor([0, 1]))
        loss = loss + F.binary_cross_entropy_with_logits(torch.randn(3, requires_grad=True), torch.ones(3))
        loss.backward()

    assert count_flops(call).uncounted == {}


def test_an_unknown_product_makes_a_lower_bound() -> None:
    count = count_flops(lambda: (torch.fft.fft(torch.ones(8)), torch.mm(torch.ones(2, 2), torch.ones(2, 2))))
    assert count.flops == 16
    assert count.lower_bound
    assert list(count.uncounted) == ["aten._fft_r2c"]


def test_counting_does_not_load_the_compiler() -> None:
    """It would add seconds to every sweep."""
    import subprocess
    import sys

    code = (
        "import sys, torch; from torch import nn; import synora.compute.preload\n"
        "from synora.compute.flops import count_flops; from synora.compute.measure import plain_step\n"
        "layer = nn.Linear(4, 4); optimizer = torch.optim.Adam(layer.parameters())\n"
        "count_flops(lambda: layer(torch.ones(2, 4)).sum().backward())\n"
        "with torch.no_grad(): plain_step(optimizer)(optimizer)\n"
        "optimizer.zero_grad(); print('torch._dynamo' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"
