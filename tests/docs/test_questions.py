"""The pages answer questions in the words of users."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

HERE = Path(__file__).parent
DOCS = HERE.parents[1] / "docs"
QUESTIONS = yaml.safe_load((HERE / "questions.yaml").read_text("utf-8"))


@pytest.mark.parametrize(
    "one", QUESTIONS, ids=lambda one: one.get("search", one["ask"])
)
def test_the_page_has_the_answer(one):
    """The words of the answer are on the page."""
    page = (DOCS / f"{one['page']}.md").read_text("utf-8")
    _, _, text = f"\n{page}".partition("\n# ")  # keywords of the head are no answer
    assert " ".join(one["answer"].split()) in " ".join(text.split())


def test_there_are_many_questions_and_each_is_asked_once():
    """Sixty questions at least, of all kinds of pages."""
    assert len({one["ask"] for one in QUESTIONS}) == len(QUESTIONS) >= 60
    assert len({one["page"] for one in QUESTIONS}) >= 18
