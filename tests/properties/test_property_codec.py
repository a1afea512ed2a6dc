"""Whatever a record holds is read back as it was written, and whatever a file holds is read or refused in words."""

from __future__ import annotations

import json
from typing import Any

import drawn_records
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from inductor_bench.errors import InductorBenchError
from inductor_bench.messages.observed import ComparedSteps, ModeReport
from inductor_bench.records.batch_record import Batch
from inductor_bench.records.code import Details, TensorView
from inductor_bench.records.comparison import ModeComparison
from inductor_bench.records.evidence import Evidence, ObservedSteps, ObservedTouches
from inductor_bench.records.module import ExtractedKernel
from inductor_bench.records.retune import Saving
from inductor_bench.records.run import Peaks, Program, Run, Timeline
from inductor_bench.store import codec
from inductor_bench.store import codec as schema
from inductor_bench.store.caches import KnownTuning

STORED = (Run, Evidence, Program, Timeline, Batch, ModeComparison, Details, ExtractedKernel, Peaks, KnownTuning, Saving)
READ = (*STORED, ObservedSteps, ObservedTouches, ComparedSteps, ModeReport)


@pytest.mark.parametrize("kind", READ, ids=lambda kind: kind.__name__)
@settings(max_examples=6)
@given(data=st.data())
def test_a_record_is_read_back_as_it_was_written(kind: Any, data: st.DataObject) -> None:
    record = data.draw(drawn_records.records(kind))
    text = json.dumps(codec.encode(record), allow_nan=False)
    assert codec.decode(kind, json.loads(text)) == record
    assert codec.decode(kind, json.loads(json.dumps(codec.encode_sparse(record)))) == record


@pytest.mark.parametrize("kind", READ, ids=lambda kind: kind.__name__)
@settings(max_examples=12)
@given(data=drawn_records.any_json)
def test_any_json_is_decoded_or_refused_in_words(kind: Any, data: Any) -> None:
    try:
        codec.decode(kind, data)
    except InductorBenchError as error:
        assert error.message


@pytest.mark.parametrize("kind", READ, ids=lambda kind: kind.__name__)
@settings(max_examples=6)
@given(data=st.data())
def test_a_record_with_one_other_value_is_decoded_or_refused_in_words(kind: Any, data: st.DataObject) -> None:
    encoded = codec.encode(data.draw(drawn_records.records(kind)))
    parent, key = encoded, data.draw(st.sampled_from(sorted(encoded)))
    while isinstance(parent[key], dict | list) and parent[key] and data.draw(st.booleans()):
        parent = parent[key]
        key = data.draw(st.sampled_from(sorted(parent) if isinstance(parent, dict) else range(len(parent))))
    parent[key] = data.draw(drawn_records.any_json)
    try:
        codec.decode(kind, encoded)
    except InductorBenchError as error:
        assert error.message


@given(st.dictionaries(st.sampled_from(["format", "x"]), drawn_records.any_json, max_size=2))
def test_a_record_of_any_format_number_is_upgraded_or_refused_in_words(data: dict[str, Any]) -> None:
    try:
        assert schema.upgrade(data, "record.json")["format"] == schema.FORMAT
    except InductorBenchError as error:
        assert error.message


def test_a_tensor_with_more_sizes_than_strides_is_refused_in_words() -> None:
    data = {"storage": 0, "offset": 0, "shape": [2, 3], "stride": [1], "dtype": "float32", "itemsize": 4}
    with pytest.raises(InductorBenchError, match="TensorView has 2 sizes and 1 strides"):
        codec.decode(TensorView, data)
