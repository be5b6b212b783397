"""Blocks of the catalogue: their maths, and that clipping per example is exact on what is built of them."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812

from consilia.core.errors import PlanError
from consilia.core.randomness import SecretRng, SharedSeed
from consilia.learning.blocks.attention import AttentionBlock, ColumnTokens
from consilia.learning.blocks.convolution import WeightStandardizedConv2d
from consilia.learning.blocks.norm import group_norm
from consilia.learning.flat import FlatModel
from consilia.learning.models import build, problems
from consilia.learning.private import private_gradient
from consilia.learning.work import LocalWork

Oracle = Callable[[nn.Module, Tensor, Tensor, float], Tensor]


def convolution() -> WeightStandardizedConv2d:
    torch.manual_seed(1)
    layer = WeightStandardizedConv2d(2, 3, 3, stride=2, padding=1).double()
    with torch.no_grad():
        layer.weight.mul_(torch.tensor([0.2, 1.0, 30.0]).view(3, 1, 1, 1)).add_(0.5)
    return layer


def test_kernels_have_mean_zero_and_norm_one() -> None:
    kernels = convolution().standardized().flatten(1)
    torch.testing.assert_close(kernels.mean(1), torch.zeros(3, dtype=torch.float64), atol=1e-12, rtol=0)
    assert kernels.detach().norm(dim=1).tolist() == pytest.approx([1, 1, 1], abs=0.01)


def test_shift_and_scale_of_a_kernel_do_not_matter() -> None:
    layer, x = convolution(), torch.randn(4, 2, 9, 9, dtype=torch.float64)
    before = layer(x)
    with torch.no_grad():
        layer.weight[2].mul_(5.0).add_(7.0)
    torch.testing.assert_close(layer(x), before, atol=1e-5, rtol=1e-5)


def test_outputs_keep_the_variance_of_the_inputs() -> None:
    torch.manual_seed(0)
    layer = WeightStandardizedConv2d(16, 32, 3, bias=False)
    assert float(layer(torch.randn(8, 16, 12, 12)).detach().var()) == pytest.approx(1, abs=0.1)


def test_a_kernel_of_one_weight_is_refused() -> None:
    with pytest.raises(PlanError, match="at least two weights"):
        WeightStandardizedConv2d(1, 4, 1)


@pytest.mark.parametrize(
    ("channels", "groups", "match"), [(8, 8, "two channels"), (12, 8, "divides"), (8, 0, "divides")]
)
def test_groups_that_erase_are_refused(channels: int, groups: int, match: str) -> None:
    with pytest.raises(PlanError, match=match):
        group_norm(channels, groups)


def test_groups_of_two_channels_leave_something_of_a_vector() -> None:
    assert float(group_norm(16)(torch.randn(4, 16)).detach().abs().mean()) > 0.5
    assert float(nn.GroupNorm(16, 16)(torch.randn(4, 16, 1)).detach().abs().max()) < 1e-3  # what is refused


def test_attention_is_torchs() -> None:
    torch.manual_seed(0)
    block = AttentionBlock(8, 2, nn.ReLU).double()
    torchs = nn.TransformerEncoderLayer(8, 2, 16, 0.0, batch_first=True, norm_first=True, dtype=torch.float64)
    pairs = {
        "self_attn.in_proj_": "mixed.", "self_attn.out_proj.": "out.", "norm1.": "before.", "norm2.": "between.",
        "linear1.": "feed.0.", "linear2.": "feed.2.",
    }  # fmt: skip
    state = block.state_dict()
    torchs.load_state_dict({t + leaf: state[b + leaf] for t, b in pairs.items() for leaf in ("weight", "bias")})
    x = torch.randn(3, 5, 8, dtype=torch.float64)
    torch.testing.assert_close(block(x), torchs(x))


def test_every_column_has_its_own_token_behind_that_of_the_row() -> None:
    tokens = ColumnTokens(3, 4)
    x = torch.tensor([[1.0, 0.0, -2.0]])
    found = tokens(x)
    assert found.shape == (1, 4, 4)
    torch.testing.assert_close(found[0, 0], tokens.bias[0])
    torch.testing.assert_close(found[0, 3], -2 * tokens.weight[2] + tokens.bias[3])


class Words(nn.Module):
    """Embedding, LayerNorm and torch's own attention; the features are numbers of words."""

    def __init__(self) -> None:
        super().__init__()
        self.words = nn.Embedding(11, 8)
        self.norm, self.attention = nn.LayerNorm(8), nn.MultiheadAttention(8, 2, batch_first=True)
        self.head = nn.Linear(8, 3)

    def forward(self, x: Tensor) -> Tensor:
        h = self.norm(self.words(x.long().clamp(0, 10)))
        found: Tensor = self.head((h + self.attention(h, h, h, need_weights=False)[0]).mean(1))
        return found


def made(name: str) -> tuple[nn.Module, tuple[int, ...]]:
    shape = {"ws-resnet": (2, 9, 8), "resnet-gn": (1, 8, 8), "lung-cnn": (1, 17, 16), "tabular-transformer": (6,)}.get(
        name, (7,)
    )
    torch.manual_seed(3)
    return (Words() if name == "words" else build(name, input_shape=shape, classes=3, seed=1)), shape


# torch's fused attention has no batched form: vmap calls it for each example, and says so once.
@pytest.mark.filterwarnings("ignore:There is a performance drop")
@pytest.mark.parametrize("name", ["ws-resnet", "resnet-gn", "lung-cnn", "tabular-transformer", "words"])
@pytest.mark.parametrize("clip", [1e-3, 1e3])
def test_clipped_sums_equal_one_example_at_a_time(name: str, clip: float, slow_clipped_sum: Oracle) -> None:
    module, shape = made(name)
    module = module.double()
    features = torch.randn(5, *shape, dtype=torch.float64) * 3
    labels = torch.tensor([0, 2, 1, 1, 0])
    model = FlatModel(module)
    gradient = private_gradient(
        model,
        LocalWork(clip_norm=clip, expected_batch=1.0),
        features.dim(),
        SecretRng.reproducible_from(SharedSeed.of(0)),
    )
    gradient(features, labels)
    torch.testing.assert_close(model.grad, slow_clipped_sum(module, features, labels, clip), rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("name", ["ws-resnet", "tabular-transformer", "words"])
def test_rows_are_treated_alone(name: str) -> None:
    module, shape = made(name)
    assert problems(module, unit="record", input_shape=shape) == []
    inputs = torch.randn(4, *shape)
    together = module(inputs)
    torch.testing.assert_close(together[2:3], module(inputs[2:3]), atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize("name", ["ws-resnet", "tabular-transformer"])
def test_an_exported_program_takes_any_number_of_rows(name: str) -> None:
    module, shape = made(name)
    rows = torch.export.Dim("rows")
    program = torch.export.export(module.eval(), (torch.zeros(2, *shape),), dynamic_shapes=({0: rows},)).module()
    inputs = torch.randn(5, *shape)
    torch.testing.assert_close(program(inputs), module(inputs))


def test_the_transformer_learns_an_interaction_that_no_linear_model_can() -> None:
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(400, 4, generator=generator)
    y = (x[:, 0] * x[:, 1] > 0).long()
    module = build("tabular-transformer", input_shape=(4,), classes=2, seed=0)
    optimizer = torch.optim.Adam(module.parameters(), 3e-3)
    for _ in range(60):
        optimizer.zero_grad()
        F.cross_entropy(module(x), y).backward()  # type: ignore[no-untyped-call]
        optimizer.step()
    assert float((module(x).argmax(1) == y).float().mean()) > 0.9
