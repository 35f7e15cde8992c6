"""Removing vectors and namespaces: exactly what is named, and nothing without confirmation."""

from __future__ import annotations

import pytest

import toolkit as tk
from toolkit.errors import InputError, UnexpectedResultWarning

SPACES = ("first", "second / two")


@pytest.fixture
def service(local_indexes) -> tk.Service:
    """Ten vectors in each of two namespaces, and in the default one."""
    service = local_indexes["dense"]
    for namespace in ("", *SPACES):
        rows = [
            {"id": f"{'ab'[n % 2]}{n}", "vector": [n, 1], "metadata": {"n": n}}
            for n in range(10)
        ]
        tk.upsert_vectors(service, rows, namespace=namespace)
    yield service
    for name in filter(None, tk.list_namespaces(service)):
        tk.delete_namespace(service, name, confirm=True)
    tk.reset_namespace(service, "", confirm=True)


def left(service: tk.Service, namespace: str = "first") -> list[str]:
    return sorted(tk.load_vectors(service, namespace=namespace, progress=False)["id"])


@pytest.mark.parametrize(
    ("chosen", "expected"),
    [
        ({"ids": "a0"}, {"a0"}),
        ({"ids": ["a0", "b1", "a0", "nope"]}, {"a0", "b1"}),
        ({"prefix": "b"}, {f"b{n}" for n in range(1, 10, 2)}),
        ({"filter": "n >= 8"}, {"a8", "b9"}),
        ({"filter": tk.parse_filter("n IN (1, 2)")}, {"b1", "a2"}),
    ],
)
def test_vectors_are_deleted_by_one_of_three(service, chosen, expected):
    """Exactly those that are named go, in this namespace alone; before that, the error has their count."""
    before = left(service)
    with pytest.raises(
        InputError,
        match=f"deleting {len(expected)} vectors of namespace 'first'.*confirm=True",
    ):
        tk.delete_vectors(service, **chosen, namespace="first")
    assert left(service) == before
    assert tk.delete_vectors(service, **chosen, namespace="first", confirm=True) == len(
        expected
    )
    assert set(before) - set(left(service)) == expected
    assert left(service, SPACES[1]) == before


def test_a_frame_is_deleted_from_its_own_namespaces(service):
    """Rows of two namespaces go from there, and not from the default one."""
    frame = tk.load_vectors(service, namespace=list(SPACES), prefix="a", progress=False)
    with pytest.raises(
        InputError,
        match="deleting 10 vectors of namespace 'first' and namespace 'second / two'",
    ):
        tk.delete_vectors(service, frame)
    assert tk.delete_vectors(service, frame, confirm=True) == 10
    assert [len(left(service, name)) for name in ("", *SPACES)] == [10, 5, 5]
    assert tk.delete_vectors(service, frame[:1], namespace="", confirm=True) == 1
    assert len(left(service, "")) == 9


@pytest.mark.parametrize(
    "chosen",
    [
        {},
        {"ids": ["a0"], "prefix": "a"},
        {"prefix": "a", "filter": "n = 1"},
        {"ids": []},
        {"prefix": ""},
    ],
)
def test_none_several_and_empty_ones_are_refused(service, chosen):
    """Nothing is deleted by a call that does not say exactly what."""
    with pytest.raises(InputError):
        tk.delete_vectors(service, **chosen, namespace="first", confirm=True)
    with pytest.raises(tk.errors.ToolkitError):
        tk.delete_vectors(service, filter=" ", namespace="first", confirm=True)
    assert len(left(service)) == 10


@pytest.mark.parametrize("confirm", [False, None, 1, "yes"])
def test_only_true_confirms(service, confirm):
    """What is merely truthy does not."""
    for call in (
        lambda: tk.delete_vectors(service, "a0", namespace="first", confirm=confirm),
        lambda: tk.reset_namespace(service, "first", confirm=confirm),
        lambda: tk.delete_namespace(service, "first", confirm=confirm),
        lambda: tk.rename_namespace(
            service, "first", SPACES[1], overwrite=True, confirm=confirm
        ),
    ):
        with pytest.raises(InputError, match="expected confirm=True"):
            call()
    assert len(left(service)) == len(left(service, SPACES[1])) == 10


def test_nothing_deleted_is_a_warning(service):
    """Ids that are not there may be mistyped, or of another namespace."""
    with pytest.warns(UnexpectedResultWarning, match="the service deleted none"):
        assert (
            tk.delete_vectors(service, ["nope"], namespace="first", confirm=True) == 0
        )


NO_MATCH = [
    ({"filter": "n = '3'"}, "n = 3? It matches 1"),
    ({"filter": "n > 90"}, "n > 90: n is a number from 0 to 9"),
    ({"filter": "m = 1"}, "no metadata has a field 'm'"),
    ({"filter": "n = 1", "namespace": "first1"}, "Did you mean 'first'?"),
    ({"prefix": "a", "namespace": "first1"}, "Did you mean 'first'?"),
    ({"ids": ["a0"], "namespace": "first1"}, "Did you mean 'first'?"),
]


@pytest.mark.parametrize(("chosen", "reason"), NO_MATCH)
def test_a_deletion_of_nothing_is_explained(service, chosen, reason):
    """The condition that matches nothing, or the unknown namespace, is named before and after the call."""
    chosen = {"namespace": "first"} | chosen
    with pytest.raises(InputError, match="deleting 0 vectors") as raised:
        tk.delete_vectors(service, **chosen)
    assert reason in str(raised.value)
    with pytest.warns(UnexpectedResultWarning) as warned:
        assert tk.delete_vectors(service, **chosen, confirm=True) == 0
    (warning,) = warned
    assert reason in str(warning.message)
    assert warning.filename == __file__


@pytest.mark.parametrize(
    ("condition", "reason"),
    [(chosen["filter"], reason) for chosen, reason in NO_MATCH[:3]],
)
def test_an_update_of_nothing_is_explained(service, condition, reason):
    """A filter that matches no vector raises one warning, whatever value it compares with."""
    changes = {"metadata": {"seen": True}}
    with pytest.warns(UnexpectedResultWarning) as warned:
        tk.update_vectors(service, changes, filter=condition, namespace="first")
    (warning,) = warned
    assert reason in str(warning.message)
    assert warning.filename == __file__


def test_an_error_between_requests_says_what_is_deleted(server):
    """The second request of three fails."""
    server.json(b'{"result": {"deleted": 990}}')
    server.always(b'{"error": "no", "status": 400}', status=400)
    with pytest.raises(tk.errors.BadRequestError) as raised:
        tk.delete_vectors(server.service(), [str(n) for n in range(2500)], confirm=True)
    assert "990 vectors were deleted" in raised.value.__notes__[0]


def test_a_lost_response_is_said(server):
    """The first try may have deleted what the second no longer counts."""
    server.raw(b"")
    server.always(b'{"result": {"deleted": 0}}')
    with pytest.warns(UnexpectedResultWarning, match="may have deleted more"):
        assert tk.delete_vectors(server.service(), "a", confirm=True) == 0


def test_a_namespace_is_reset_and_stays(service):
    """Its vectors go, those of others do not."""
    with pytest.raises(
        InputError, match="removing all 10 vectors of namespace 'second / two'"
    ):
        tk.reset_namespace(service, SPACES[1])
    assert tk.reset_namespace(service, SPACES[1], confirm=True) == 10
    assert tk.describe_index(service).namespaces == {"": 10, "first": 10, SPACES[1]: 0}
    with pytest.raises(InputError, match="all 10 vectors of the default namespace"):
        tk.reset_namespace(service, "")


def test_a_namespace_is_deleted(service):
    """It goes with its vectors."""
    with pytest.raises(
        InputError, match="removing namespace 'first' with its 10 vectors"
    ):
        tk.delete_namespace(service, "first")
    assert tk.delete_namespace(service, "first", confirm=True) == 10
    assert tk.list_namespaces(service) == ["", SPACES[1]]
    with pytest.raises(InputError, match="reset_namespace"):
        tk.delete_namespace(service, "", confirm=True)


@pytest.mark.parametrize("call", [tk.reset_namespace, tk.delete_namespace])
def test_a_mistyped_namespace_is_named(service, call):
    """Nothing happens, and the nearest one is suggested."""
    with pytest.raises(InputError, match="Did you mean 'first'"):
        call(service, "first name", confirm=True)


def test_a_namespace_is_renamed(service):
    """Its vectors are there under the new name; a name that is taken needs two consents."""
    before = left(service)
    tk.rename_namespace(service, "first", "new / name")
    assert left(service, "new / name") == before
    assert "first" not in tk.list_namespaces(service)
    with pytest.raises(InputError, match=r"'second / two'.*10 vectors"):
        tk.rename_namespace(service, "new / name", SPACES[1])
    tk.delete_vectors(service, "a0", namespace="new / name", confirm=True)
    with pytest.raises(
        InputError,
        match=r"removing 10 vectors of namespace 'second / two'.*confirm=True",
    ):
        tk.rename_namespace(service, "new / name", SPACES[1], overwrite=True)
    tk.rename_namespace(service, "new / name", SPACES[1], overwrite=True, confirm=True)
    assert left(service, SPACES[1]) == sorted(set(before) - {"a0"})
    with pytest.raises(InputError, match="which the index does not have"):
        tk.rename_namespace(service, "nope", "free")
