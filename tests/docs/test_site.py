"""`make site` builds the docs as a site. The test builds it in a separate environment and opens it in Chromium."""

from __future__ import annotations

import html
import json
import os
import re
import tomllib
from pathlib import Path

import pytest
from browser import found_on, in_browser

pytestmark = pytest.mark.nightly

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
QUESTIONS = os.path.join(os.path.dirname(os.path.abspath(__file__)), "questions.toml")


def pages(site: Path) -> list[str]:
    return sorted(str(one.relative_to(site)) for one in site.rglob("*.html"))


def text_of(site: Path, page: str) -> str:
    return (site / page).read_text(encoding="utf-8")


def test_every_page_is_built_and_no_link_is_broken(site):
    docs = Path(ROOT, "docs")
    names = {str(one.relative_to(docs).with_suffix(".html")) for one in docs.rglob("*.md")}
    assert names | {"index.html"} <= set(pages(site))
    assert 'href="repository/specs/' in text_of(site, "recipes.html")
    assert (site / "repository" / "specs" / "vicuna-7b-sharegpt-lora-1xa100.xp.txt").exists()


def test_every_heading_has_its_place(site):
    fences = re.compile(r"^```.*?^```", re.S | re.M)
    for one in Path(ROOT, "docs").rglob("*.md"):
        page = text_of(site, str(one.relative_to(Path(ROOT, "docs")).with_suffix(".html")))
        headings = re.findall(r"^#{1,6} \S", fences.sub("", one.read_text(encoding="utf-8")), re.M)
        assert len(re.findall(r"<h[1-6] id=", page)) >= len(headings), one.name


def test_code_that_is_copied_has_no_escaped_bar(site):
    shown = 0
    for page in pages(site):
        for code in re.findall(r"<code>(.*?)</code>", text_of(site, page), re.S):
            text = html.unescape(re.sub("<[^>]*>", "", code))
            assert "\\|" not in text, (page, text)
            shown += "|" in text
    assert shown > 10


def test_specs_have_colours(site):
    """The first word of a spec is highlighted as a keyword, and each page with specs has highlighted settings and
    numbers.
    """
    specs = 0
    for page in pages(site):
        for block in re.findall(
            r'<div class="highlight"><pre><span></span><code>(.*?)</code>', text_of(site, page), re.S
        ):
            if re.match("(?:xpc 1|train .* on )", re.sub("<[^>]*>", "", block)):
                assert re.match('<span class="k">(?:xpc|train)</span>', block), (page, block[:200])
                specs += 1
    assert specs > 40
    sample = text_of(site, "tutorial.html")
    assert all(f'<span class="{kind}">' in sample for kind in ("k", "m", "na", "nc", "s"))


MISSED = 0.035
"""For at most this share of the questions, the first result may be a wrong section; 0.033 was measured. For new
questions, more results are wrong: of 240 questions that nobody had looked at before, 57; of 314 later ones, 47; of the
last 286 ones, 66, of which the last 151 had 28.
"""


def questions() -> dict[str, list[str]]:
    with open(QUESTIONS, "rb") as handle:
        return tomllib.load(handle)


def answers(found: str, wanted: list[str]) -> bool:
    """Whether a search result (an address) is one of the wanted addresses. If a wanted address has no anchor, every
    section of its page is accepted.
    """
    return any(found == one or found.split("#")[0] == one for one in wanted)


@in_browser
def test_the_search_answers_questions(site, tmp_path):
    """The first search result is a page, with the page's best section below it. This section must be one of the
    expected sections.
    """
    wanted = questions()
    assert len(wanted) > 1000
    first = found_on(
        site,
        f"""
        const first = {{}}, one = await frame("/index.html?q=start", 1280), inside = one.contentDocument;
        await until(() => inside.querySelector(".md-search-result__item"));
        const list = inside.querySelector(".md-search-result__list");
        const field = inside.querySelector("[data-md-component=search-query]");
        for (const question of {json.dumps(list(wanted))}) {{
          const changed = new Promise((done) => new MutationObserver(done).observe(list, {{ childList: true }}));
          field.value = question;
          field.dispatchEvent(new one.contentWindow.KeyboardEvent("keyup"));
          await changed;
          await sleep(20);
          const links = [...list.querySelectorAll(".md-search-result__item:first-child > .md-search-result__link")];
          first[question] = links.length ? links[Math.min(1, links.length - 1)].href : "";
        }}
        return first;""",
        tmp_path,
    )
    locations = {question: re.sub(r"^http://[^/]*/|\?[^#]*", "", found) for question, found in first.items()}
    missed = {one: found for one, found in locations.items() if not answers(found, wanted[one])}
    assert len(missed) <= len(wanted) * MISSED, missed


@in_browser
@pytest.mark.parametrize(
    ("question", "title"),
    [
        pytest.param("how do I cancel it", "How do I stop a run with Ctrl-C?", id="a synonym"),
        pytest.param("vllm completoins for grpo", "How do I use vLLM to generate completions for GRPO?", id="misspelt"),
        pytest.param("per_gpu_train_batch_size", "batch.micro", id="a key of another tool"),
        pytest.param("enospc", "What happens when the disk is full?", id="a word that no page shows"),
        pytest.param("ran for 1800000 milliseconds before timing out", "NCCL error: unhandled", id="a phrase"),
        pytest.param(
            "RuntimeError: DataLoader worker (pid 1234) is killed by signal: Killed",
            "ChildFailedError",
            id="an exception",
        ),
        pytest.param("DPO alignment doesn't work on LoRA models", "DPO after SFT", id="a contraction"),
        pytest.param("how can I see which tokens are used for the loss", "What is shown", id="neighbouring words"),
        pytest.param("kubern", "Slurm, Kubernetes, SkyPilot", id="still typing"),
        pytest.param("XP960", "beyond-the-card", id="a code"),
        pytest.param("learningrate", "How do I set the learning rate and warmup?", id="two words in one"),
        pytest.param("qwen9 support", "Which models are supported", id="a version that no page has"),
        pytest.param("what do I put in the jsonl", "Which dataset format", id="everyday words"),
        pytest.param("model outputs empty <think></think>", "Reasoning in some rows only", id="a tag"),
        pytest.param("saving a checkpoint fails with ZeRO-3", "Saving a checkpoint fails", id="another meaning"),
        pytest.param("is my data sent to anybody", "Does xpc send my data", id="an irregular verb"),
        pytest.param("chat with my model in the terminal", "How do I chat with the trained model", id="not terminate"),
    ],
)
def test_the_search_finds_other_words(site, tmp_path, question, title):
    shown = found_on(
        site,
        f"""
        const one = await frame("/index.html?q=" + encodeURIComponent({json.dumps(question)}), 1280);
        const first = await until(() => one.contentDocument.querySelector(".md-search-result__item"));
        return {{ text: first.textContent, marked: first.querySelectorAll("mark").length }};""",
        tmp_path,
    )
    assert title in shown["text"]
    assert shown["marked"]


def test_sections_have_words_that_no_page_shows(site):
    """The search index has two kinds of words that no page shows: a setting's names in other tools, and the questions
    with which users look for a section (docs/asked.toml).
    """
    index = json.loads(text_of(site, "search/search_index.json"))["docs"]
    names = {one["location"]: one.get("names", []) for one in index}
    assert {"micro_batch_size", "per_gpu_train_batch_size"} <= set(names["reference/batch.html#batchmicro"])
    stated = tomllib.loads(Path(ROOT, "docs", "asked.toml").read_text("utf-8"))
    assert stated == {one["location"]: one["asked"] for one in index if "asked" in one}
    assert "quota exceeded" in stated["faq.html#what-happens-when-the-disk-is-full"]
    assert not (site / "asked.toml").exists()


def test_every_section_that_answers_has_phrases(site):
    """Each question and each setting has phrases, and none has a phrase twice."""
    stated = tomllib.loads(Path(ROOT, "docs", "asked.toml").read_text("utf-8"))
    index = json.loads(text_of(site, "search/search_index.json"))["docs"]
    sections = [one["location"] for one in index if re.match(r"faq\.html#|reference/.*#", one["location"])]
    assert len(sections) > 300
    assert not [one for one in sections if not stated.get(one)]
    for place, phrases in stated.items():
        assert len({phrase.lower() for phrase in phrases}) == len(phrases), place


def test_every_answer_exists(site):
    for question, wanted in questions().items():
        for one in wanted:
            page, _, anchor = one.partition("#")
            assert (site / page).exists(), question
            assert not anchor or f'id="{anchor}"' in text_of(site, page), (question, one)
