"""A release: built, installed with core dependencies alone, and used for the whole reading job."""

from __future__ import annotations

import os
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest
from packaging.metadata import Metadata

import toolkit as tk
from toolkit_service.demo.local_service import LocalService
from toolkit_service.demo.run import connected, environment_for

ROOT = Path(__file__).parents[2]
pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

READING = """
import warnings
warnings.simplefilter("error")
import matplotlib
matplotlib.use("agg")
import toolkit as tk

service = tk.connect()
failures = tk.load_failures(service, progress=False)
vectors = tk.load_vectors(service, namespace="all", progress=False)
assert tk.get_receipt(failures).complete and tk.get_receipt(vectors).complete
print(len(failures), len(vectors))
tk.explode_headers(failures), tk.explode_labels(failures), tk.explode_metadata(vectors)
tk.sync_failures(service, "failures", progress=False)
tk.export_vectors(service, "vectors", namespace="all", progress=False)
assert len(tk.read_snapshot("failures")) == len(failures)
assert len(tk.read_snapshot("vectors")) == len(vectors)
tk.plots.plot_failure_trend(failures).figure.savefig("trend.png")
tk.plots.plot_vector_norms(vectors).figure.savefig("norms.png")
some = failures[:500]
report = tk.report_failures(some)
for name in ("report.html", "report.md", "report.json"):
    report.save(name)
tk.group_failures(some), tk.classify_failures(some), tk.explain_spike(some)
tk.audit_vectors(vectors)
tk.FailurePanel(some), tk.FailureFilterPanel(service), tk.QueryPanel(service)
try:
    tk.export_excel(failures, "failures.xlsx")
except tk.errors.ToolkitError as error:
    print(error)
"""


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    """A source distribution, and the wheel that is built from it."""
    folder = tmp_path_factory.mktemp("dist")
    command = [
        sys.executable,
        "-m",
        "build",
        "--no-isolation",
        "--outdir",
        str(folder),
        str(ROOT),
    ]
    subprocess.run(command, check=True, capture_output=True, text=True)
    (source,), (wheel,) = folder.glob("*.tar.gz"), folder.glob("*.whl")
    return source, wheel


def test_the_wheel_has_the_package_and_nothing_else(built):
    """All files of the packages are in it, and metadata that a registry accepts."""
    source, wheel = built
    with zipfile.ZipFile(wheel) as archive:
        names = {name for name in archive.namelist() if ".dist-info/" not in name}
        (described,) = (
            name for name in archive.namelist() if name.endswith(".dist-info/METADATA")
        )
        metadata = Metadata.from_email(archive.read(described))
    packages = ("toolkit", "toolkit_service")
    files = {
        path.relative_to(ROOT).as_posix()
        for package in packages
        for path in (ROOT / package).rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    assert names == files
    assert "toolkit/py.typed" in names
    assert str(metadata.version) == tk.__version__
    with tarfile.open(source) as archive:
        roots = {name.split("/")[1] for name in archive.getnames() if "/" in name}
    assert roots == {
        *packages,
        "README.md",
        "LICENSE",
        "CHANGELOG.md",
        "pyproject.toml",
        "PKG-INFO",
        ".gitignore",
    }


def test_the_changelog_has_the_version():
    """What a release has is written under its version."""
    assert f"## [{tk.__version__}] - " in (ROOT / "CHANGELOG.md").read_text("utf-8")


def test_the_wheel_does_the_whole_reading_job_with_core_dependencies(built, tmp_path):
    """In an empty environment; what needs more says which packages."""
    _, wheel = built
    venv = [sys.executable, "-m", "venv", "--without-pip", str(tmp_path / "venv")]
    subprocess.run(venv, check=True)
    python = tmp_path / "venv" / ("Scripts" if os.name == "nt" else "bin") / "python"
    # compiling every file of pandas and pyarrow would take longer than installing them
    pip = [sys.executable, "-m", "pip", "--python", str(python)]
    install = [
        *pip,
        "--disable-pip-version-check",
        "install",
        "--quiet",
        "--no-compile",
        "--constraint",
        ROOT / "constraints.txt",
        wheel,
    ]
    subprocess.run(install, check=True, capture_output=True, text=True)
    subprocess.run([*pip, "check"], check=True, capture_output=True, text=True)
    work = tmp_path / "work"
    work.mkdir()
    with LocalService(sample=True) as local:
        service = connected(local)
        variables = os.environ | environment_for(service)
        variables.pop("PYTHONPATH", None)
        done = subprocess.run(
            [python, "-c", READING],
            cwd=work,
            env=variables,
            capture_output=True,
            text=True,
            check=False,
        )
    assert done.returncode == 0, done.stderr
    rows, needed = done.stdout.splitlines()
    assert all(int(count) > 900 for count in rows.split())
    assert "pip install openpyxl" in needed
