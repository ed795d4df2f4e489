"""Interaction layers, and the form they take in exported graphs."""

from __future__ import annotations

import pytest
import torch

from lanner.layers import CatInteraction, DotInteraction


def test_dot_interaction_equals_its_definition() -> None:
    layer = DotInteraction(features=4, dim=3)
    bottom, embedded = torch.randn(5, 3), torch.randn(5, 12)
    vectors = torch.cat([bottom, embedded], 1).view(5, 5, 3)
    pairs = [vectors[:, i].mul(vectors[:, j]).sum(1) for i in range(5) for j in range(i)]
    expected = torch.cat([bottom, torch.stack(pairs, 1)], 1)
    assert layer.out_features == expected.shape[1] == 3 + 10
    torch.testing.assert_close(layer(bottom, embedded), expected)
    layer.plain = True
    torch.testing.assert_close(layer(bottom, embedded), expected)


def test_without_dense_features_only_the_pairs_are_left() -> None:
    layer, embedded = DotInteraction(features=3, dim=2, bottom=False), torch.randn(4, 6)
    a, b, c = embedded.view(4, 3, 2).unbind(1)
    expected = torch.stack([(b * a).sum(1), (c * a).sum(1), (c * b).sum(1)], 1)
    assert layer.out_features == 3
    torch.testing.assert_close(layer(None, embedded), expected)


def test_index_is_constant_and_not_a_weight() -> None:
    assert not DotInteraction(3, 2).state_dict()


@pytest.mark.filterwarnings("ignore:.*jit.trace:DeprecationWarning")
@pytest.mark.parametrize("form", ["trace", "export"])
def test_exported_graph_is_plain_and_takes_any_batch(form: str) -> None:
    layer = DotInteraction(features=3, dim=4)
    example = torch.randn(3, 4), torch.randn(3, 12)
    if form == "trace":
        exported = torch.jit.trace(layer, example)
    else:
        batch = torch.export.Dim("batch")
        exported = torch.export.export(layer, example, dynamic_shapes=({0: batch}, {0: batch})).module()
    bottom, embedded = torch.randn(7, 4), torch.randn(7, 12)
    torch.testing.assert_close(exported(bottom, embedded), layer(bottom, embedded))


def test_cat_interaction() -> None:
    layer, bottom, embedded = CatInteraction(2, 3, 4), torch.randn(5, 4), torch.randn(5, 6)
    assert layer.out_features == 10
    assert torch.equal(layer(bottom, embedded), torch.cat([bottom, embedded], 1))
    assert torch.equal(layer(None, embedded), embedded)
