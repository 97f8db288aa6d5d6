"""`xpc lsp` as an editor uses it: a process that reads requests from standard input and writes answers to standard
output.
"""

from __future__ import annotations

import os
import sys

import pytest
import pytest_lsp
from compile_support import xpc
from lsprotocol import types
from pytest_lsp import ClientServerConfig, LanguageClient

from xpc.compiler.explain.texts import explain
from xpc.grammar.format import format_file
from xpc.grammar.parse import parse
from xpc.grammar.source import Source

pytestmark = pytest.mark.slow

START = "import sys; from xpc.compiler.cli import main; sys.exit(main(['lsp']))"
WRONG = """\
xpc 1

# Zwölf: 🙂
train qwen2.5-0.5b on mix with bf16 gbs=16 lerning_rate=1e-5

hardware 8 x v100-32gb
data mix {
  "rows.jsonl"
}
"""
RIGHT = """\
xpc 1

train qwen2.5-0.5b-instruct on alpaca with bf16 gbs=16 micro=2 seq=512

hardware 8   x h100-80gb
"""


@pytest_lsp.fixture(config=ClientServerConfig(server_command=[sys.executable, "-c", START]))
async def client(lsp_client: LanguageClient):
    params = types.InitializeParams(capabilities=types.ClientCapabilities())
    await lsp_client.initialize_session(params)
    yield
    await lsp_client.shutdown_session()


async def opened(client: LanguageClient, folder, text: str, name: str = "spec.xp") -> str:
    """Open the text as a document of a folder, and wait for its first diagnostics; return the document's URI."""
    uri = (folder / name).as_uri()
    (folder / "rows.jsonl").write_text('{"prompt": "a", "completion": "b"}\n' * 4)
    client.text_document_did_open(types.DidOpenTextDocumentParams(types.TextDocumentItem(uri, "xpc", 1, text)))
    await client.wait_for_notification(types.TEXT_DOCUMENT_PUBLISH_DIAGNOSTICS)
    return uri


def where(text: str, needle: str) -> types.Position:
    """The position directly after a piece of text. Positions count UTF-16 units, as the protocol requires."""
    before = text[: text.index(needle) + len(needle)]
    line = before.rpartition("\n")[2]
    return types.Position(before.count("\n"), len(line.encode("utf-16-le")) // 2)


def diagnostics_of(client: LanguageClient, uri: str) -> dict[str, types.Diagnostic]:
    return {str(one.code): one for one in client.diagnostics[uri]}


@pytest.mark.asyncio
async def test_findings_have_their_ranges(client: LanguageClient, tmp_path):
    found = diagnostics_of(client, await opened(client, tmp_path, WRONG))
    assert found["XP101"].severity == types.DiagnosticSeverity.Error
    assert found["XP101"].range.end.line == 3
    begin = WRONG.splitlines()[3].index("lerning_rate")
    assert found["XP101"].range.start.character == begin
    assert "lr" in found["XP101"].message


@pytest.mark.asyncio
async def test_edits_are_checked_and_a_quick_fix_repairs(client: LanguageClient, tmp_path):
    uri = await opened(client, tmp_path, WRONG)
    wrong = diagnostics_of(client, uri)["XP101"]
    fixes = await client.text_document_code_action_async(
        types.CodeActionParams(types.TextDocumentIdentifier(uri), wrong.range, types.CodeActionContext([wrong]))
    )
    (edit,) = next(one for one in fixes if one.diagnostics[0].code == "XP101").edit.changes[uri]
    lines = WRONG.splitlines(keepends=True)
    line = lines[edit.range.start.line]
    lines[edit.range.start.line] = line[: edit.range.start.character] + edit.new_text + line[edit.range.end.character :]
    client.text_document_did_change(
        types.DidChangeTextDocumentParams(
            types.VersionedTextDocumentIdentifier(2, uri),
            [types.TextDocumentContentChangeWholeDocument("".join(lines))],
        )
    )
    await client.wait_for_notification(types.TEXT_DOCUMENT_PUBLISH_DIAGNOSTICS)
    assert "XP101" not in diagnostics_of(client, uri)


@pytest.mark.asyncio
async def test_hover_explains_a_name_and_its_emitted_arguments(client: LanguageClient, tmp_path):
    uri = await opened(client, tmp_path, RIGHT)
    document = types.TextDocumentIdentifier(uri)
    about = await client.text_document_hover_async(types.HoverParams(document, where(RIGHT, "gbs")))
    assert explain("batch.gbs") in about.contents.value
    assert "batch.gbs = 16" in about.contents.value
    model = await client.text_document_hover_async(types.HoverParams(document, where(RIGHT, "qwen2.5")))
    assert "parameters" in model.contents.value


@pytest.mark.asyncio
async def test_completion_replaces_the_word_that_is_typed(client: LanguageClient, tmp_path):
    text = RIGHT.replace(" micro=2", "") + "batch {\n  mic\n}\n"
    uri = await opened(client, tmp_path, text)
    found = await client.text_document_completion_async(
        types.CompletionParams(types.TextDocumentIdentifier(uri), where(text, "  mic"))
    )
    micro = next(one for one in found if one.label == "micro")
    assert micro.text_edit.new_text == "micro = "
    assert micro.text_edit.range.start.character == 2


@pytest.mark.asyncio
async def test_definitions_are_bases_blocks_and_files(client: LanguageClient, tmp_path):
    (tmp_path / "base.xp").write_text("precision bf16\n")
    text = WRONG.replace("xpc 1\n", 'xpc 1\nextends "base.xp"\n')
    uri = await opened(client, tmp_path, text)

    async def leads(needle: str):
        return await client.text_document_definition_async(
            types.DefinitionParams(types.TextDocumentIdentifier(uri), where(text, needle))
        )

    assert os.path.basename((await leads('"base')).uri) == "base.xp"
    assert os.path.basename((await leads('"rows')).uri) == "rows.jsonl"
    block = await leads("on mi")
    assert block.range.start == where(text, "data ")


@pytest.mark.asyncio
async def test_formatting_equals_xpc_fmt(client: LanguageClient, tmp_path):
    uri = await opened(client, tmp_path, RIGHT)
    options = types.FormattingOptions(tab_size=2, insert_spaces=True)
    (edit,) = await client.text_document_formatting_async(
        types.DocumentFormattingParams(types.TextDocumentIdentifier(uri), options)
    )
    tree, _ = parse(Source("spec.xp", RIGHT))
    assert edit.new_text == format_file(tree) != RIGHT


@pytest.mark.asyncio
async def test_semantic_tokens_are_relative_and_complete(client: LanguageClient, tmp_path):
    uri = await opened(client, tmp_path, WRONG)
    found = await client.text_document_semantic_tokens_full_async(
        types.SemanticTokensParams(types.TextDocumentIdentifier(uri))
    )
    lines, line, column, words = WRONG.splitlines(), 0, 0, []
    for number in range(0, len(found.data), 5):
        down, right, length = found.data[number : number + 3]
        line, column = line + down, right if down else column + right
        units = lines[line].encode("utf-16-le")
        words.append(units[2 * column : 2 * (column + length)].decode("utf-16-le"))
    assert words[:4] == ["xpc", "1", "# Zwölf: 🙂", "train"]
    assert "lerning_rate" in words


HOSTILE = {
    "empty": "", "NUL": "\0", "a half-typed emoji": RIGHT + 'save "out/\ud83d', "only half": "train ",
    "brackets": RIGHT + "(" * 200, "a list without an end": RIGHT + "save = [" + "1," * 200,
    "its own base": 'extends "spec.xp"\n' + RIGHT, "a base without an end": 'extends "/dev/zero"\n',
    "too long": RIGHT + "lr = 1e-5\n" * 27000,
}  # fmt: skip


@pytest.mark.asyncio
async def test_any_text_is_answered(client: LanguageClient, tmp_path):
    """For any text, the server answers every kind of request at three positions: at the beginning, at the end, and
    beyond the end.
    """
    for name, text in HOSTILE.items():
        uri = await opened(client, tmp_path, text)
        document = types.TextDocumentIdentifier(uri)
        lines = text.split("\n")
        for at in (types.Position(0, 0), types.Position(len(lines) - 1, len(lines[-1])), types.Position(10**6, 10**6)):
            await client.text_document_hover_async(types.HoverParams(document, at))
            await client.text_document_completion_async(types.CompletionParams(document, at))
            await client.text_document_definition_async(types.DefinitionParams(document, at))
        await client.text_document_semantic_tokens_full_async(types.SemanticTokensParams(document))
        whole = types.Range(types.Position(0, 0), types.Position(10**6, 0))
        fixes = types.CodeActionParams(document, whole, types.CodeActionContext([]))
        await client.text_document_code_action_async(fixes)
        assert client.diagnostics[uri], name


@pytest.mark.asyncio
async def test_a_windows_file_keeps_its_line_ends(client: LanguageClient, tmp_path):
    text = (RIGHT + "\noptimizer adamw(lerning=1)\n").replace("\n", "\r\n")
    uri = await opened(client, tmp_path, text)
    assert diagnostics_of(client, uri)["XP101"].range.start == types.Position(6, len("optimizer adamw("))
    options = types.FormattingOptions(tab_size=2, insert_spaces=True)
    (edit,) = await client.text_document_formatting_async(
        types.DocumentFormattingParams(types.TextDocumentIdentifier(uri), options)
    )
    assert edit.range.end == types.Position(7, 0)
    assert edit.new_text.count("\r\n") == edit.new_text.count("\n")


@pytest.mark.asyncio
async def test_locks_and_specs_of_bundles_are_read_as_by_check(client: LanguageClient, tmp_path):
    (tmp_path / "mine.xp").write_text('train qwen2.5-3b on rows with gbs=528 bf16\ndata rows {\n  "rows.jsonl"\n}\n')
    (tmp_path / "rows.jsonl").write_text('{"prompt": "a", "completion": "b"}\n')
    (tmp_path / "mine.xp.lock").write_text("broken")
    uri = await opened(client, tmp_path, (tmp_path / "mine.xp").read_text(), "mine.xp")
    assert "is not a lock of xpc" in diagnostics_of(client, uri)["XP114"].message
    (tmp_path / "mine.xp.lock").unlink()
    assert xpc("compile", "mine.xp", cwd=str(tmp_path)).returncode == 0
    inside = tmp_path / "mine.bundle"
    uri = await opened(client, inside, (inside / "spec.xp").read_text())
    assert not [one for one in client.diagnostics[uri] if one.severity == types.DiagnosticSeverity.Error]
    assert any("out/mine" in one.message for one in client.diagnostics[uri])


def test_of_a_large_sweep_only_the_first_members_are_checked(tmp_path):
    """An editor asks for diagnostics after each key press. Therefore the server checks only the first of a sweep's
    10,000 members. The test counts the members that are checked; it does not measure the time, because times vary.
    """
    from types import SimpleNamespace

    from xpc.compiler.language_server import server

    values = ", ".join(map(str, range(1, 101)))
    text = "xpc 1\ntrain qwen2.5-3b on infinity-instruct\nhardware 8 x h100-80gb\n"
    text += f"sweep {{\n  seed = [{values}]\n  lr = [{', '.join(f'{n}e-6' for n in range(1, 101))}]\n}}\n"
    document = SimpleNamespace(uri=f"file://{tmp_path}/x.xp", source=text)
    assert len(server.checked(document).members) == server.MEMBERS


@pytest.mark.asyncio
async def test_an_editor_gets_the_first_of_very_many_findings(client, tmp_path):
    text = RIGHT + "".join(f"optimizr{number} {{ lrr = 1 }}\n" for number in range(600))
    uri = await opened(client, tmp_path, text)
    found = client.diagnostics[uri]
    assert len(found) == 501
    assert found[-1].message.endswith(" more findings; `xpc check` shows all")
