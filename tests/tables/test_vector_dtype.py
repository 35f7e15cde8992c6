"""The column type of vectors does what pandas asks of an extension type, and what users ask of a column."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from pandas.tests.extension import base
from pandas.tests.extension.conftest import (  # noqa: F401 - fixtures of pandas' tests
    all_arithmetic_operators,
    all_boolean_reductions,
    all_data,
    all_numeric_accumulations,
    all_numeric_reductions,
    all_reductions,
    as_array,
    as_frame,
    as_series,
    box_in_series,
    comparison_op,
    data_for_twos,
    data_repeated,
    fillna_method,
    groupby_apply_op,
    invalid_scalar,
    na_value,
    use_numpy,
    using_nan_is_na,
)

from toolkit.tables.vector_dtype import VectorArray, VectorDtype


@pytest.fixture(params=["vector[float32, 2]", "vector[float32]", "vector[int64]"])
def dtype(request):
    """Of a known dimension or of any."""
    return VectorDtype.construct_from_string(request.param)


def column(values, dtype):
    """A column of these."""
    return VectorArray._from_sequence(values, dtype=dtype)


@pytest.fixture
def data(dtype):
    """Ten different vectors."""
    return column([(number, number + 1) for number in range(1, 11)], dtype)


@pytest.fixture
def data_missing(dtype):
    """A missing one, and one that is there."""
    return column([None, (1, 2)], dtype)


@pytest.fixture
def data_for_sorting(dtype):
    """B, C, A with A < B < C."""
    return column([(2, 0), (3, 0), (1, 9)], dtype)


@pytest.fixture
def data_missing_for_sorting(dtype):
    """B, missing, A with A < B."""
    return column([(2, 0), None, (1, 9)], dtype)


@pytest.fixture
def data_for_grouping(dtype):
    """B, B, missing, missing, A, A, B, C with A < B < C."""
    a, b, c = (1, 9), (2, 0), (3, 0)
    return column([b, b, None, None, a, a, b, c], dtype)


@pytest.fixture
def na_cmp():
    """Whether two missing values are one."""
    return lambda left, right: pd.isna(left) and pd.isna(right)


class TestExtension(
    base.BaseAccumulateTests,
    base.BaseCastingTests,
    base.BaseConstructorsTests,
    base.BaseDtypeTests,
    base.BaseGetitemTests,
    base.BaseGroupbyTests,
    base.BaseIndexTests,
    base.BaseInterfaceTests,
    base.BaseParsingTests,
    base.BaseMethodsTests,
    base.BaseMissingTests,
    base.BasePrintingTests,
    base.BaseReshapingTests,
    base.BaseUnaryOpsTests,
):
    """pandas' own tests of extension types: all but those of assigning, arithmetic, reductions and plotting.

    pandas reads a tuple as several values when it assigns or fills, so that a vector cannot be the new value
    of a single cell there; pandas' tests of its own JSON type leave them out for the same reason.
    """

    # a tuple as the value that fills
    test_fillna_series = test_fillna_frame = test_fillna_limit_frame = None
    test_fillna_limit_series = test_fillna_copy_frame = test_fillna_copy_series = None
    test_series_constructor_scalar_with_index = test_searchsorted = None
    # makes a frame of tuples, which are its rows
    test_from_dtype = None
    # vectors of a dimension cannot be added as tuples are, one behind the other
    test_combine_add = None
    # Arrow memory is never written to: a view that is assigned to has memory of its own from then on
    test_view = test_array_interface_copy = (
        test_readonly_propagates_to_numpy_array_method
    ) = None
    # pandas expects this one to fail for every type; differences of vectors are not defined
    test_getitem_series_integer_with_missing_raises = test_diff = None
    # compares a transposed row with a column of the tuple's numbers
    test_transpose_frame = test_transpose = None


def test_cells_are_stacked_with_the_type_of_the_column():
    """Numpy reads a cell of float32 as float32, and each other cell as before."""
    single = pd.Series([[0.1, 0.2], [0.3, 0.4]], dtype="vector[float32, 2]")
    assert np.stack(single).dtype == np.array(single.iloc[0]).dtype == np.float32
    assert np.asarray(single.iloc[0], dtype=float).dtype == np.float64
    assert np.stack(single.astype("vector[float64, 2]")).dtype == np.float64
    assert isinstance(single.iloc[0], tuple)
