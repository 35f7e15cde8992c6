"""A data folder that is damaged, linked elsewhere or full: the errors name the file and the way out."""

from __future__ import annotations

import json
import os
import resource
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import httpx
import pytest

from tests.toolkit_service import full_disk_service
from toolkit.base.private_files import make_folder
from toolkit.errors import LocalServiceError, SettingsError
from toolkit.secrets.masking_key import masking_key
from toolkit_service.demo.local_service import LocalService
from toolkit_service.queue.state import Store
from toolkit_service.vectors.index_registry import IndexRegistry
from toolkit_service.vectors.specs import IndexSpec

ROOT = Path(__file__).parents[2]
PAGE = 8192
Damage = Callable[[Path], object]


def sql(statement: str) -> Damage:
    """Execute a statement on a file."""

    def change(file: Path) -> None:
        connection = sqlite3.connect(file)
        connection.execute(statement)
        connection.commit()
        connection.close()

    return change


def other_program(file: Path) -> None:
    """Put the database of another program in place of a file."""
    file.unlink()
    sql("CREATE TABLE notes (line)")(file)


def half_overwritten(file: Path) -> None:
    """Overwrite the second half of a file, from a page on."""
    start = file.stat().st_size // PAGE // 2 * PAGE
    with file.open("r+b") as opened:
        opened.seek(start)
        opened.write(b"\xa5" * (file.stat().st_size - start))


@pytest.mark.parametrize(
    "damage",
    [
        sql("DELETE FROM kept WHERE name = 'version'"),
        sql("UPDATE kept SET value = x'ff' WHERE name <> 'version'"),
        sql("UPDATE kept SET value = 5 WHERE name <> 'version'"),
        lambda file: file.write_text("no database " * 999),
        other_program,
    ],
    ids=["no version", "keys", "keys that are numbers", "text", "another program's"],
)
def test_a_damaged_queue_is_named_with_the_way_out(
    tmp_path: Path, damage: Damage
) -> None:
    """Opening it is one error with the path and the way out; another program's tables stay alone."""
    Store(tmp_path).close()
    file = tmp_path / "queue.sqlite"
    damage(file)
    before = file.read_bytes()
    with pytest.raises(LocalServiceError) as caught:
        Store(tmp_path)
    assert str(file) in str(caught.value)
    assert "--data-dir" in str(caught.value)
    if damage is other_program:
        connection = sqlite3.connect(file)
        assert connection.execute("SELECT name FROM sqlite_master").fetchall() == [
            ("notes",)
        ]
        connection.close()
    else:
        assert len(file.read_bytes()) >= len(before)


@pytest.mark.parametrize(
    "damage",
    [
        sql("UPDATE spec SET text = '{'"),
        sql("UPDATE spec SET text = '[1]'"),
        sql("DELETE FROM spec"),
        sql("DROP INDEX by_sequence"),
        sql("UPDATE vectors SET vector = x'0000' WHERE id = '5'"),
        sql("UPDATE vectors SET vector = NULL WHERE id = '5'"),
        half_overwritten,
    ],
    ids=["JSON", "fields", "no spec", "no index", "short vector", "no vector", "half"],
)
def test_a_damaged_index_is_named_with_the_way_out(
    tmp_path: Path, damage: Damage
) -> None:
    """Opening the indexes is one error with the path and the option that helps."""
    registry = IndexRegistry(tmp_path)
    index = registry.create(IndexSpec.parse("plain:dense:2:COSINE"))
    index.upsert(
        [{"id": str(row), "vector": [row, 1], "data": "x" * 500} for row in range(300)]
    )
    registry.close()
    damage(tmp_path / "plain.sqlite")
    with pytest.raises(LocalServiceError) as caught:
        IndexRegistry(tmp_path)
    assert str(tmp_path / "plain.sqlite") in str(caught.value)
    assert "--data-dir" in str(caught.value)


@pytest.mark.slow
def test_a_full_disk_loses_nothing_that_was_acknowledged(tmp_path: Path) -> None:
    """On a mounted disk without room, writes are refused by name and reads go on; with room all is there."""
    disk = tmp_path / "disk"
    disk.mkdir()
    command = full_disk_service.command(disk)
    if command is None:
        pytest.skip("this system does not let a program mount a disk of its own")
    done = subprocess.run(
        command, check=False, capture_output=True, text=True, timeout=120, cwd=ROOT
    )
    if done.returncode == full_disk_service.NOT_PERMITTED:
        pytest.skip("this system does not let a program mount a disk in memory")
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    for call, file in (("publish", "queue.sqlite"), ("upsert", "plain.sqlite")):
        assert report[call]["status"] == 500
        assert file in report[call]["error"]
        assert "full disk" in report[call]["error"]
    assert report["listing"] == 200
    # a start that is refused meanwhile says why
    assert "full" in report.get("start", "full")
    assert min(report["acknowledged"]) >= 10
    assert report["lost messages"] == report["lost rows"] == []
    assert report["after"] == [200, 200]


def test_a_limit_on_the_size_of_files_is_no_full_disk(tmp_path: Path) -> None:
    """A publish and an upsert are refused with the file and the limit; without the limit both succeed."""
    with LocalService(tmp_path, indexes=["plain:dense:2:COSINE"]) as service:
        http = httpx.Client(
            base_url=service.url,
            headers={"Authorization": f"Bearer {service.token}"},
            timeout=20,
        )
        rows = [
            {"id": str(row), "vector": [row, 1], "data": "x" * 1000}
            for row in range(1000)
        ]
        calls = [
            (
                "queue.sqlite",
                "/v2/publish/http://127.0.0.1:9/x",
                {"content": b"y" * 1_000_000},
            ),
            ("plain.sqlite", "/vector/plain/upsert", {"json": rows}),
        ]
        unlimited = resource.RLIM_INFINITY
        resource.prlimit(service.pid, resource.RLIMIT_FSIZE, (300_000, unlimited))
        for file, path, body in calls:
            response = http.post(path, **body)
            assert response.status_code == 500
            assert file in response.json()["error"]
            assert "300,000 bytes" in response.json()["error"]
            assert "full disk" not in response.json()["error"]
        resource.prlimit(service.pid, resource.RLIMIT_FSIZE, (unlimited, unlimited))
        for _, path, body in calls:
            assert http.post(path, **body).status_code == 200
        http.close()


@pytest.mark.parametrize("name", ["queue", "vectors"])
def test_a_folder_that_is_a_link_is_refused(tmp_path: Path, name: str) -> None:
    """Nothing is written where it leads; a link that the user names as the data folder is followed."""
    elsewhere, data = tmp_path / "elsewhere", tmp_path / "data"
    elsewhere.mkdir()
    data.mkdir()
    (data / name).symlink_to(elsewhere)
    with pytest.raises(
        LocalServiceError, match=f"'{name}': a link in place of a folder"
    ):
        LocalService(data).start()
    assert [*elsewhere.iterdir()] == []


def test_folders_of_the_toolkit_are_no_links(tmp_path: Path) -> None:
    """A masking key is not made through a link; folders above a folder may be links."""
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (tmp_path / "link").symlink_to(elsewhere)
    with pytest.raises(SettingsError, match="a link in place of a folder"):
        masking_key(tmp_path / "link")
    assert [*elsewhere.iterdir()] == []
    make_folder(tmp_path / "link" / "inside")
    assert (elsewhere / "inside").stat().st_mode & 0o777 == 0o700


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="reads /proc")
def test_many_callers_leave_little_memory_behind() -> None:
    """Sixty callers that read and write at once make the service grow by less than 150 MB."""
    script = ROOT / "tests" / "soak" / "service_memory.py"
    command = [
        sys.executable,
        str(script),
        "--clients",
        "60",
        "--seconds",
        "4",
        "--most",
        "150",
    ]
    done = subprocess.run(
        command,
        check=False,
        capture_output=True,
        text=True,
        timeout=120,
        env=os.environ,
    )
    assert done.returncode == 0, done.stdout + done.stderr
