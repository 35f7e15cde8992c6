"""Callbacks from bodies, files and a real receiver become a frame with a receipt."""

from __future__ import annotations

import base64
import hashlib
import json
import socket
import threading
import time
from pathlib import Path

import jwt
import pytest
import requests
from hypothesis import given
from hypothesis import strategies as st

import toolkit as tk
from toolkit.errors import (
    IncompleteLoadWarning,
    InputError,
    LocalServiceError,
    ProtocolError,
)
from toolkit.loading.callbacks import CallbackReceiver, load_callbacks
from toolkit.tables.schemas import CALLBACKS

CANARY = "canary-6f1e5d8"
KEYS = ("sig_current_" + "a" * 32, "sig_next_" + "b" * 32)


def body(number: int = 1, **more) -> dict:
    return {
        "sourceMessageId": f"msg_{number}",
        "status": 200,
        "retried": 0,
        "maxRetries": 3,
        **more,
    }


def service(**options) -> tk.Service:
    return tk.connect(
        queue_url="http://127.0.0.1:1", queue_token="queue-token-of-the-test", **options
    )


def signed_service() -> tk.Service:
    return service(current_signing_key=KEYS[0], next_signing_key=KEYS[1])


def signature(
    url: str, raw: bytes, *, key: str = KEYS[0], token_id: str = "jwt_1"
) -> str:
    now = int(time.time())
    digest = base64.urlsafe_b64encode(hashlib.sha256(raw).digest()).decode()
    claims = {
        "iss": "Upstash",
        "sub": url,
        "exp": now + 300,
        "nbf": now,
        "iat": now,
        "jti": token_id,
        "body": digest,
    }
    return jwt.encode(claims, key, algorithm="HS256")


def raw_request(receiver: CallbackReceiver, request: bytes) -> bytes:
    """Send bytes as they are, and read until the receiver closes."""
    host, port = receiver.url.split("/")[2].split(":")
    with socket.create_connection((host, int(port)), timeout=10) as connection:
        connection.sendall(request)
        connection.shutdown(socket.SHUT_WR)
        return b"".join(iter(lambda: connection.recv(65_536), b""))


def test_bodies_become_a_frame_with_a_receipt():
    """Bytes, text and dicts, in order; the receipt says complete."""
    frame = load_callbacks([json.dumps(body(1)).encode(), json.dumps(body(2)), body(3)])
    assert list(frame.columns) == CALLBACKS.names
    assert list(frame["source_message_id"]) == ["msg_1", "msg_2", "msg_3"]
    receipt = tk.get_receipt(frame)
    assert (receipt.what, receipt.source, receipt.rows, receipt.complete) == (
        "callbacks",
        "bodies",
        3,
        True,
    )
    assert receipt.bytes == len(json.dumps(body(1))) * 2
    assert str(frame["status"].dtype) == "Int64"
    assert str(frame["created_at"].dtype) == "datetime64[ms, UTC]"


def test_one_body_need_not_be_in_a_list():
    """A dict and bytes are one body."""
    assert (
        len(load_callbacks(body()))
        == len(load_callbacks(json.dumps(body()).encode()))
        == 1
    )


def test_no_rows_make_an_empty_frame_with_all_columns():
    """No callbacks are a normal result, with the types of a full one."""
    empty, full = load_callbacks([]), load_callbacks([body()])
    assert list(empty.dtypes.astype(str)) == list(full.dtypes.astype(str))
    assert tk.get_receipt(empty).complete


def test_a_limit_loads_the_first_rows_and_the_receipt_says_so():
    """Short by request is not complete; a limit that was not reached is."""
    frame = load_callbacks([body(1), body(2), body(3)], limit=2)
    assert list(frame["source_message_id"]) == ["msg_1", "msg_2"]
    assert tk.get_receipt(frame).reasons == ("only the first 2 were requested",)
    assert tk.get_receipt(load_callbacks([body(1), body(2)], limit=2)).complete
    for limit in (0, -1, True, 1.5):
        with pytest.raises(InputError, match="limit"):
            load_callbacks([], limit=limit)


def test_secrets_are_masked_unless_revealed():
    """Header values and URLs are masked by default; equal secrets have equal masks."""
    given_body = body(
        url=f"https://app.example/?key={CANARY}", sourceHeader={"Authorization": CANARY}
    )
    frame = load_callbacks([given_body, given_body])
    assert CANARY not in repr(frame.to_dict())
    assert frame["url"][0] == frame["url"][1]
    assert CANARY in load_callbacks([given_body], reveal=True)["url"][0]
    assert tk.get_receipt(frame).scope == {"revealed": False}


def test_files_and_folders_are_read_in_the_order_of_their_names(tmp_path: Path):
    """One body, an array, lines; a folder of them; other files, a BOM and blank lines do no harm."""
    (tmp_path / "a.json").write_text(json.dumps(body(1)))
    (tmp_path / "b.json").write_bytes(
        b"\xef\xbb\xbf" + json.dumps([body(2), body(3)]).encode()
    )
    (tmp_path / "c.jsonl").write_text(
        f"{json.dumps(body(4))}\r\n\n{json.dumps(body(5))}\n"
    )
    (tmp_path / "notes.txt").write_text("no callbacks")
    frame = load_callbacks(tmp_path)
    assert list(frame["source_message_id"]) == [
        f"msg_{number}" for number in range(1, 6)
    ]
    assert len(load_callbacks(str(tmp_path / "c.jsonl"))) == 2
    assert tk.get_receipt(load_callbacks(tmp_path / "a.json")).source == "a.json"


def test_a_broken_line_is_named(tmp_path: Path):
    """The error says which line of which file; nothing is left out silently."""
    path = tmp_path / "c.jsonl"
    path.write_text(f"{json.dumps(body(1))}\n{{\n")
    with pytest.raises(ProtocolError, match=r"line 2 of 'c\.jsonl'"):
        load_callbacks(path)


@pytest.mark.parametrize("content", ["[1]", '["{}"]', "null", "5", "", "[{}"])
def test_a_json_file_that_holds_no_bodies_is_an_error(tmp_path: Path, content: str):
    """Neither numbers nor text in an array, nor half a file."""
    path = tmp_path / "a.json"
    path.write_text(content)
    with pytest.raises((ProtocolError, InputError), match=r"a\.json"):
        load_callbacks(path)


def test_an_invalid_source_is_refused(tmp_path: Path):
    """JSON text that is not in a list, missing paths, other files, links in folders, other objects."""
    (tmp_path / "a.txt").write_text("{}")
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "a.json").symlink_to(tmp_path / "a.txt")
    for source in (
        '{"a": 1}',
        "[]",
        tmp_path / "none.json",
        tmp_path / "a.txt",
        tmp_path / "folder",
        5,
        [5],
        None,
    ):
        with pytest.raises(InputError, match="loading callbacks"):
            load_callbacks(source)


def test_a_receiver_keeps_the_bodies_it_accepted_and_waits_for_them():
    """Real requests over HTTP become rows with their time of arrival; without keys nothing is verified."""
    with CallbackReceiver() as receiver:
        assert not receiver.wait(1, timeout=0.01)
        threading.Timer(
            0.05, lambda: requests.put(receiver.url, json=body(2), timeout=60)
        ).start()
        assert requests.post(receiver.url, json=body(1), timeout=60).status_code == 200
        assert receiver.wait(2, timeout=60)
        frame = load_callbacks(receiver)
        url = receiver.url
    assert list(frame["source_message_id"]) == ["msg_1", "msg_2"]
    assert frame["verified"].isna().all()
    assert frame["received_at"].notna().all()
    receipt = tk.get_receipt(frame)
    assert (receipt.source, receipt.complete) == (url, True)
    assert receipt.assumptions
    assert len(load_callbacks(receiver)) == 2  # still there when closed
    with pytest.raises(requests.ConnectionError):
        requests.post(url, json=body(), timeout=60)


def test_with_keys_only_verified_callbacks_are_taken_once():
    """Unsigned, wrongly signed, changed and repeated requests are refused with 401 and counted."""
    with CallbackReceiver(signed_service()) as receiver:
        raw = json.dumps(body(1)).encode()
        good = {"Upstash-Signature": signature(receiver.url, raw)}
        attempts = [
            (raw, {}, 401),
            (
                raw,
                {"Upstash-Signature": signature(receiver.url, raw, key="x" * 40)},
                401,
            ),
            (raw, {"Upstash-Signature": signature(receiver.url + "/", raw)}, 401),
            (raw + b" ", good, 401),
            (raw, good, 200),
            (raw, good, 401),
            (
                raw,
                {
                    "Service-Signature": signature(
                        receiver.url, raw, key=KEYS[1], token_id="jwt_2"
                    )
                },
                200,
            ),
            (
                raw,
                good
                | {"Service-Signature": signature(receiver.url, raw, token_id="jwt_3")},
                401,
            ),
        ]
        statuses = [
            requests.post(
                receiver.url, data=data, headers=headers, timeout=60
            ).status_code
            for data, headers, _ in attempts
        ]
        assert statuses == [status for _, _, status in attempts]
        assert (len(receiver), receiver.refused) == (2, 6)
        assert receiver.last_refusal
        shown = repr(receiver)
        frame = load_callbacks(receiver)
    assert frame["verified"].all()
    assert "2 received, 6 refused" in shown
    assert "signatures verified" in shown
    for secret in KEYS:
        assert secret not in f"{shown} {receiver.last_refusal}"


def test_the_keys_of_the_region_that_a_delivery_names_verify_it():
    """A receiver that knows two regions' keys accepts what each signed, and nothing the other signed."""
    regional = {
        f"US_EAST_1_QSTASH_{which}_SIGNING_KEY": f"{which}_of_us_{'u' * 32}"
        for which in ("CURRENT", "NEXT")
    }
    known = tk.connect(
        environ=regional
        | {"QSTASH_TOKEN": "token-of-eu", "QSTASH_CURRENT_SIGNING_KEY": KEYS[0]}
    )
    us, raw = regional["US_EAST_1_QSTASH_NEXT_SIGNING_KEY"], b"{}"
    with CallbackReceiver(known) as receiver:
        for number, (key, headers, status) in enumerate(
            (
                (us, {"Upstash-Region": "US_EAST_1"}, 200),
                (KEYS[0], {"Upstash-Region": "EU_CENTRAL_1"}, 200),
                (KEYS[0], {}, 200),
                (us, {}, 401),
                (us, {"Upstash-Region": "EU_CENTRAL_1"}, 401),
                (KEYS[0], {"Upstash-Region": "US_EAST_1"}, 401),
            )
        ):
            signed = signature(receiver.url, raw, key=key, token_id=f"jwt_{number}")
            response = requests.post(
                receiver.url,
                data=raw,
                headers=headers | {"Upstash-Signature": signed},
                timeout=60,
            )
            assert response.status_code == status, (number, response.text)
        assert (len(receiver), receiver.refused) == (3, 3)


def test_the_clock_decides_about_expiry():
    """A receiver whose clock is ten minutes on refuses what was signed now."""
    with CallbackReceiver(
        signed_service(), clock=lambda: time.time() + 600
    ) as receiver:
        raw = b"{}"
        headers = {"Upstash-Signature": signature(receiver.url, raw)}
        response = requests.post(receiver.url, data=raw, headers=headers, timeout=60)
    assert response.status_code == 401
    assert "expired" in response.json()["error"]


def test_signatures_are_verified_for_a_tunnels_address():
    """Behind a tunnel the service signs the public address."""
    with CallbackReceiver(
        signed_service(), public_url="https://tunnel.example/cb", path="/cb"
    ) as receiver:
        assert receiver.url == "https://tunnel.example/cb"
        local = f"http://127.0.0.1:{receiver._port}/cb"
        headers = {"Upstash-Signature": signature(receiver.url, b"{}")}
        assert (
            requests.post(local, data=b"{}", headers=headers, timeout=60).status_code
            == 200
        )


def test_invalid_callbacks_are_refused_and_the_receiver_keeps_running():
    """Other paths and methods, no JSON, no length, too long, truncated: an error each, then a good one."""
    with CallbackReceiver() as receiver:
        base = receiver.url.removesuffix("/callbacks")
        assert requests.post(f"{base}/other", json={}, timeout=60).status_code == 404
        assert requests.get(receiver.url, timeout=60).status_code == 405
        assert requests.head(receiver.url, timeout=60).status_code == 405
        assert requests.post(receiver.url, data=b"[]", timeout=60).status_code == 400
        assert (
            requests.post(receiver.url, data=b"[" * 100_000, timeout=60).status_code
            == 400
        )
        assert (
            requests.post(receiver.url, data=iter([b"{}"]), timeout=60).status_code
            == 411
        )
        start = b"POST /callbacks HTTP/1.1\r\nHost: x\r\n"
        for headers, status in (
            (b"", b"411"),
            (b"Content-Length: -1\r\n", b"400"),
            (b"Content-Length: 2\r\nContent-Length: 3\r\n", b"400"),
            (b"Content-Length: 2\r\nTransfer-Encoding: chunked\r\n", b"411"),
            (b"Content-Length: 99999999\r\n", b"413"),
            (b"Content-Length: " + b"9" * 20 + b"\r\n", b"413"),
            (b"Content-Length: " + b"9" * 5_000 + b"\r\n", b"400"),
        ):
            assert raw_request(receiver, start + headers + b"\r\n").split()[1] == status
        assert raw_request(receiver, start + b"Content-Length: 10\r\n\r\n{}") == b""
        assert b" 400 " in raw_request(receiver, b"\x16\x03\x01 no http\r\n\r\n")
        assert len(receiver) == 0
        assert requests.post(receiver.url, json=body(), timeout=60).status_code == 200
        assert len(receiver) == 1


def test_a_full_receiver_turns_callbacks_away_instead_of_forgetting_any():
    """503 makes the service try again; the load says that it is incomplete, and clear() makes space."""
    with CallbackReceiver(keep=1) as receiver:
        assert requests.post(receiver.url, json=body(1), timeout=60).status_code == 200
        assert requests.post(receiver.url, json=body(2), timeout=60).status_code == 503
        with pytest.warns(IncompleteLoadWarning, match="the receiver was full"):
            frame = load_callbacks(receiver)
        assert not tk.get_receipt(frame).complete
        assert "1 turned away" in repr(receiver)
        receiver.clear()
        assert requests.post(receiver.url, json=body(2), timeout=60).status_code == 200


def test_many_senders_at_once_lose_nothing():
    """Eight threads, two hundred callbacks: each is there once."""
    with CallbackReceiver() as receiver:

        def send(first: int) -> None:
            for number in range(first, first + 25):
                assert (
                    requests.post(
                        receiver.url, json=body(number), timeout=10
                    ).status_code
                    == 200
                )

        threads = [
            threading.Thread(target=send, args=(25 * part,)) for part in range(8)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        frame = load_callbacks(receiver)
    assert sorted(frame["source_message_id"]) == sorted(
        f"msg_{number}" for number in range(200)
    )


def test_a_receiver_listens_on_this_machine_alone_and_says_when_its_port_is_taken():
    """The address is 127.0.0.1; a second receiver on the same port is a typed error."""
    with CallbackReceiver() as receiver:
        port = receiver._port
        assert receiver.url.startswith(f"http://127.0.0.1:{port}/")
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(("127.0.0.2", port), timeout=60)
        with pytest.raises(LocalServiceError, match=str(port)):
            CallbackReceiver(port=port).start()


def test_a_receiver_that_does_not_listen_says_so():
    """Before the start there is no address; the repr tells; wrong options are refused when it is made."""
    receiver = CallbackReceiver()
    with pytest.raises(InputError, match="start"):
        _ = receiver.url
    assert repr(receiver) == (
        "CallbackReceiver('not started', 0 received, signatures not verified: no keys known)"
    )
    with receiver:
        pass
    assert "closed" in repr(receiver)
    receiver.close()
    for options in ({"path": "callbacks"}, {"keep": 0}):
        with pytest.raises(InputError):
            CallbackReceiver(**options)


def test_the_receivers_service_masks_its_own_token():
    """A body that echoes the service's token is masked by the receiver's redactor by default."""
    token = "queue-token-of-the-test"
    with CallbackReceiver(service()) as receiver:
        echoed = base64.b64encode(f"you sent {token}".encode()).decode()
        requests.post(receiver.url, json=body(body=echoed), timeout=60)
        frame = load_callbacks(receiver)
    assert token not in frame["body"][0]
    assert frame["body"][0].startswith("you sent [masked")


@pytest.mark.slow
@given(
    st.lists(
        st.dictionaries(
            st.text(max_size=8), st.integers() | st.text(max_size=8), max_size=4
        ),
        max_size=6,
    )
)
def test_lines_and_arrays_hold_the_same_bodies(tmp_path_factory, bodies):
    """However bodies are written to a file, the same rows are returned, as many as were written."""
    folder = tmp_path_factory.mktemp("bodies")
    (folder / "a.jsonl").write_text("\n".join(map(json.dumps, bodies)))
    (folder / "b.json").write_text(json.dumps(bodies))
    lines, array = load_callbacks(folder / "a.jsonl"), load_callbacks(folder / "b.json")
    assert len(lines) == len(array) == len(bodies)
    assert lines.equals(array)
