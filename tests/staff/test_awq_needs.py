"""compression.awq is built on a student's own quantization: every right one must do."""

from __future__ import annotations

import importlib
import importlib.util

import pytest

from tests.compression.awq_models import (
    UNTIED,
    assert_codes_alone,
    assert_computes_with_its_codes,
    assert_norms_have_scales,
    assert_not_clipped,
    dequantized,
    draw_model,
)
from tests.grading.draw import Draw
from tests.staff.authoring.source import ROOT

VARIANTS = sorted((ROOT / "tests/staff/variants/compression/quantization").glob("*.py"))


@pytest.mark.parametrize("variant", VARIANTS, ids=lambda path: path.stem)
def test_every_right_quantization_carries_awq(monkeypatch, variant):
    ours = importlib.import_module("solutions.compression.awq")
    spec = importlib.util.spec_from_file_location(f"solutions.compression.{variant.stem}", variant)
    theirs = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(theirs)
    for name in ("QuantizedLinear", "dequantize", "quantize"):
        monkeypatch.setattr(ours, name, getattr(theirs, name))
    draw, bits, group = Draw(1), 4, 16
    model = draw_model(draw, UNTIED)
    tokens = draw.integers(0, UNTIED.vocab_size, 3, 40)
    result = ours.awq(model, tokens, bits, group)
    state = dequantized(result)
    assert_norms_have_scales(model, state, tokens, bits, group)
    assert_not_clipped(model, state, bits, group)
    assert_computes_with_its_codes(result, tokens)
    assert_codes_alone(model, result, bits, group)
