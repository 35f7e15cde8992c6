"""Write the sample files of this folder: ``python data/make_samples.py``."""  # noqa: INP001 - a script, no package

from __future__ import annotations

from pathlib import Path

from toolkit_service.demo.samples import sample_files

if __name__ == "__main__":
    for name, content in sample_files().items():
        (Path(__file__).parent / name).write_bytes(content)
