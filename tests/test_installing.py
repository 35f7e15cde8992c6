"""What an install without extras can do, and that messages name commands that work wherever it came from."""

from __future__ import annotations

import re
import runpy
import shlex
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.version import Version

from toolkit.cli.local_packages import LOCAL_PACKAGES

ROOT = Path(__file__).parents[1]
EXTRAS = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"][
    "optional-dependencies"
]
COMMANDS = [
    "",
    "demo",
    "serve",
    "snapshot",
    "snapshot failures",
    "snapshot vectors",
    "report",
    "verify",
    "query",
]
_PACKAGES = {
    re.split(r"[^a-z0-9_-]", package)[0]
    for extra in EXTRAS.values()
    for package in extra
}
_MODULES = sorted(
    name.replace("-", "_") for name in _PACKAGES - {"workflow-vector-toolkit"}
)
_NONE_OF_THE_EXTRAS = f"import sys\nsys.modules.update(dict.fromkeys({_MODULES!r}))\n"


def without_extras(script: str) -> subprocess.CompletedProcess[str]:
    """Run a script where no package of an extra can be imported."""
    return subprocess.run(
        [sys.executable, "-c", _NONE_OF_THE_EXTRAS + script],
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
        cwd=ROOT,
    )


@pytest.mark.slow
def test_help_needs_no_extra():
    """The command and each sub-command explain themselves where only core dependencies are installed."""
    done = without_extras(f"""
from toolkit.cli import main
for command in {COMMANDS!r}:
    try:
        status = main([*command.split(), "--help"])
    except SystemExit as ended:
        status = ended.code
    print("STATUS", command, status)
""")
    assert done.stderr == ""
    assert re.findall("^STATUS (.*)$", done.stdout, re.MULTILINE) == [
        f"{command} 0" for command in COMMANDS
    ]
    assert done.stdout.count("usage: toolkit") == len(COMMANDS)
    assert "--approximate-above" in done.stdout


@pytest.mark.slow
@pytest.mark.parametrize(
    "script",
    [
        "from toolkit.cli import main; sys.exit(main(['serve', '--port', '0']))",
        "from toolkit.cli import main; sys.exit(main(['demo']))",
    ],
)
def test_a_missing_extra_names_its_packages(script):
    """Not the project's own name, which no registry has to know."""
    done = without_extras(script)
    assert done.returncode == 1
    assert f"pip install {LOCAL_PACKAGES}." in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.slow
def test_the_child_of_connect_names_its_packages(tmp_path):
    """connect("local") where the child process lacks the extra: the child's own words are in the error."""
    (tmp_path / "sitecustomize.py").write_text(_NONE_OF_THE_EXTRAS, "utf-8")
    script = f"""
import os, sys
os.environ["PYTHONPATH"] = {str(tmp_path)!r}
import toolkit as tk
try:
    tk.connect("local")
except tk.errors.LocalServiceError as error:
    print(error)
"""
    done = without_extras(script)
    assert f"pip install {LOCAL_PACKAGES}" in done.stdout, done.stdout + done.stderr


@pytest.mark.slow
def test_the_reading_parts_need_no_extra():
    """Every public name can be loaded, and a frame becomes a plot and a report, with core dependencies."""
    done = without_extras("""
import matplotlib
matplotlib.use("agg")
import toolkit as tk
for name in tk.__all__:
    getattr(tk, name)
frame = tk.load_callbacks([{"status": 200, "body": "b2s="}])
print(len(frame), len(tk.__all__))
""")
    assert done.stdout.startswith("1 "), done.stderr


def named_in(extra: str) -> Iterator[str]:
    """Return the packages of an extra, and the extras that it includes, in order."""
    for text in EXTRAS[extra]:
        requirement = Requirement(text)
        if requirement.name == "workflow-vector-toolkit":
            yield from re.search(r"\[(.*)\]", text)[1].split(",")
        else:
            yield requirement.name


def test_messages_and_pages_name_packages_that_exist():
    """No text installs the project from a registry; packages of [local] are those of pyproject."""
    assert LOCAL_PACKAGES.split() == [
        re.split(r"[^a-z0-9-]", package)[0] for package in EXTRAS["local"]
    ]
    texts = [
        *(ROOT / "toolkit").rglob("*.py"),
        *(ROOT / "docs").rglob("*.md"),
        *(ROOT / "notebooks").glob("*.ipynb"),
    ]
    wrong = [
        path.name
        for path in texts
        if re.search(r"pip install '?workflow-vector", path.read_text("utf-8"))
    ]
    assert wrong == []
    page = (ROOT / "docs" / "installing.md").read_text("utf-8")
    rows = dict(re.findall(r"^\| `(\w+)` \| ([^|]+) \|", page, re.MULTILINE))
    assert rows.keys() == EXTRAS.keys()
    for extra in EXTRAS.keys() - {"dev"}:
        listed = re.findall(r"[a-z0-9-]+", rows[extra].replace(" and ", ", "))
        assert listed == list(named_in(extra)), extra


def test_each_core_dependency_has_a_lowest_version_that_can_be_tested():
    """`make test-lowest` pins every one of them, each not above the version that all other tests run with."""
    script = runpy.run_path(str(ROOT / "tests" / "packaging" / "lowest.py"))
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    names = [Requirement(line).name.lower() for line in project["dependencies"]]
    lowest = script["lowest"]()
    assert list(lowest) == names
    lines = (ROOT / "constraints.txt").read_text("utf-8").lower().splitlines()
    pinned = dict(line.split("==") for line in lines if not line.startswith("#"))
    assert all(Version(lowest[name]) <= Version(pinned[name]) for name in names)
    lines = script["constraints"]()
    assert len({line.partition("==")[0].lower() for line in lines}) == len(lines)
    assert set(lines) >= {f"{name}=={version}" for name, version in lowest.items()}


@pytest.mark.parametrize("environment", ["install", "demo"])
def test_an_environment_is_made_by_a_new_pip_that_compiles_nothing(
    tmp_path, environment
):
    """The pip of Python 3.11 needs twice the time, and bytecode of all packages takes as long again."""
    made = subprocess.run(
        [
            "make",
            "--dry-run",
            environment,
            f"VENV={tmp_path / 'a'}",
            f"DEMO={tmp_path / 'b'}",
        ],
        capture_output=True,
        text=True,
        check=True,
        cwd=ROOT,
    )
    installs = [
        shlex.split(line)
        for line in made.stdout.splitlines()
        if " -m pip install " in line
    ]
    assert installs[0][-1].startswith("pip==")
    assert len(installs) == 2
    for line in installs:
        assert "--no-compile" in line


def test_no_variable_turns_bytecode_on_again():
    """For pip, PIP_NO_COMPILE=1 means the opposite of --no-compile."""
    for path in (".ci/run", "Makefile", "tests/packaging/fresh_machine.sh"):
        assert "PIP_NO_COMPILE" not in (ROOT / path).read_text("utf-8"), path
