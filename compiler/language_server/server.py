"""The handlers of the Language Server Protocol. No other module imports pygls or lsprotocol."""

from __future__ import annotations

import asyncio
import gc
import os

from lsprotocol import types
from pygls.lsp.server import LanguageServer
from pygls.uris import from_fs_path, to_fs_path
from pygls.workspace import TextDocument

from xpc.compiler import __version__
from xpc.compiler.files.file_memory import user_memory
from xpc.compiler.files.inputs import open_spec
from xpc.compiler.language_server.completion import complete, without_locations
from xpc.compiler.language_server.cursor_context import CursorContext, context_at
from xpc.compiler.language_server.hover import hover
from xpc.compiler.language_server.navigation import definition
from xpc.compiler.language_server.positions import UNITS, Units, as_bytes, as_source, offset, position
from xpc.compiler.language_server.tokens import TYPES, coloured
from xpc.compiler.pipeline import Checked, check_text
from xpc.grammar.diagnostic import ERROR, WARNING, Diagnostic
from xpc.grammar.format import format_file
from xpc.grammar.parse import MAX_SIZE, parse
from xpc.grammar.record import evolve
from xpc.grammar.source import Source

# the command line turns garbage collection off, because most commands end soon; the language server runs for hours
gc.enable()
# Editors send the complete text after each change. If they sent only the changed part, pygls would apply the change at
# the wrong line: for pygls, a line also ends at a form feed and at U+2028.
SERVER = LanguageServer("xpc", __version__, types.TextDocumentSyncKind.Full)
PAUSE = 0.2
"""A text is checked when the user has not typed for this many seconds."""
SORTS = {
    "keyword": types.CompletionItemKind.Keyword, "clause": types.CompletionItemKind.Class,
    "setting": types.CompletionItemKind.Property, "value": types.CompletionItemKind.EnumMember,
    "model": types.CompletionItemKind.Module, "dataset": types.CompletionItemKind.File,
    "gpu": types.CompletionItemKind.Unit, "snippet": types.CompletionItemKind.Snippet,
}  # fmt: skip
MEMBERS = 64
"""At most this many members of a sweep are checked while the user types. Each member takes milliseconds; `xpc check`
checks all members.
"""
FINDINGS = 500
"""An editor gets at most this many findings of a document."""
SEVERITIES = {ERROR: types.DiagnosticSeverity.Error, WARNING: types.DiagnosticSeverity.Warning}


def path_of(document: TextDocument) -> str:
    """The path of a document's file. A document that was never saved gets a path in the working directory."""
    return to_fs_path(document.uri) or os.path.abspath("untitled.xp")


def checked(document: TextDocument) -> Checked:
    """Check a document as `xpc check` does, with two differences: unsaved changes are included, and only the first
    members of a sweep are checked.
    """
    data, name, workspace = open_spec(path_of(document), as_bytes(document.source))
    return check_text(data, name, evolve(workspace, memory=user_memory(), copies=False, most_members=MEMBERS))


def units_of(document: TextDocument) -> Units:
    """The unit in which the editor counts columns: code units of UTF-8, UTF-16 or UTF-32."""
    return UNITS[document.position_codec.encoding or "utf-16"]


def range_of(document: TextDocument, source: Source, start: int, end: int) -> types.Range:
    """Convert the offsets [start, end) to a range in the editor's code units."""
    units = units_of(document)
    return types.Range(types.Position(*position(source, start, units)), types.Position(*position(source, end, units)))


def context_in(document: TextDocument, source: Source, at: types.Position) -> CursorContext:
    """The word at a position of the editor, with its context. The result is empty if the text is larger than a spec may
    be.
    """
    if len(source.text) > MAX_SIZE:
        return context_at("", 0)
    return context_at(source.text, offset(source, at.line, at.character, units_of(document)))


def _own(document: TextDocument, one: Diagnostic) -> bool:
    return one.primary is not None and one.primary.source.name == os.path.basename(path_of(document))


def as_protocol(document: TextDocument, one: Diagnostic) -> types.Diagnostic:
    """Convert a finding to a diagnostic of the protocol. If the finding is in an extended spec, it is shown at line 1
    of the open document, and its message states the file and the line of the finding.
    """
    text = one.message + (f"\nhelp: {one.help}" if one.help else "")
    top = types.Position(0, 0)
    span = types.Range(top, top)
    if one.primary is not None and _own(document, one):
        span = range_of(document, one.primary.source, one.primary.span.start, one.primary.span.end)
    elif one.primary is not None:
        line, column = one.primary.source.position(one.primary.span.start)
        text = f"{one.primary.source.name}:{line}:{column}: {text}"
    related = [
        types.DiagnosticRelatedInformation(
            types.Location(document.uri, range_of(document, label.source, label.span.start, label.span.end)), label.text
        )
        for label in one.related
        if label.source.name == os.path.basename(path_of(document))
    ]
    severity = SEVERITIES.get(one.severity, types.DiagnosticSeverity.Information)
    return types.Diagnostic(span, text, severity, one.code, source="xpc", related_information=related)


def publish(uri: str) -> None:
    """Check a document and send its findings to the editor."""
    document = SERVER.workspace.get_text_document(uri)
    problems = checked(document).problems
    found = [as_protocol(document, one) for one in problems[:FINDINGS]]
    if len(problems) > FINDINGS:
        top, text = types.Position(0, 0), f"{len(problems) - FINDINGS:,} more findings; `xpc check` shows all"
        found.append(types.Diagnostic(types.Range(top, top), text, types.DiagnosticSeverity.Information, source="xpc"))
    SERVER.text_document_publish_diagnostics(types.PublishDiagnosticsParams(uri, found, document.version))


@SERVER.feature(types.TEXT_DOCUMENT_DID_OPEN)
@SERVER.feature(types.TEXT_DOCUMENT_DID_SAVE)
def opened(server: LanguageServer, params: types.DidOpenTextDocumentParams | types.DidSaveTextDocumentParams) -> None:
    """Check a document after it was opened, and again after each save: the specs that it extends may have changed."""
    publish(params.text_document.uri)


@SERVER.feature(types.TEXT_DOCUMENT_DID_CHANGE)
async def changed(server: LanguageServer, params: types.DidChangeTextDocumentParams) -> None:
    """Check a document after a change, but only when no other change has followed for PAUSE seconds."""
    uri, version = params.text_document.uri, params.text_document.version
    await asyncio.sleep(PAUSE)
    if server.workspace.get_text_document(uri).version == version:
        publish(uri)


@SERVER.feature(types.TEXT_DOCUMENT_DID_CLOSE)
def closed(server: LanguageServer, params: types.DidCloseTextDocumentParams) -> None:
    """Remove the findings about a document that was closed."""
    server.text_document_publish_diagnostics(types.PublishDiagnosticsParams(params.text_document.uri, []))


@SERVER.feature(types.TEXT_DOCUMENT_HOVER)
def hovered(server: LanguageServer, params: types.HoverParams) -> types.Hover | None:
    """The explanation of a word: its default, its value in this spec and the trainer arguments that it becomes."""
    document = server.workspace.get_text_document(params.text_document.uri)
    source = as_source(document.source)
    location = context_in(document, source, params.position)
    text = hover(location, checked(document)) if location.token.text else None
    if text is None:
        return None
    span = range_of(document, source, location.token.start, location.token.end)
    return types.Hover(types.MarkupContent(types.MarkupKind.Markdown, text), span)


@SERVER.feature(types.TEXT_DOCUMENT_COMPLETION, types.CompletionOptions(trigger_characters=["=", "(", "[", " "]))
def completed(server: LanguageServer, params: types.CompletionParams) -> list[types.CompletionItem]:
    """The completions at a position."""
    document = server.workspace.get_text_document(params.text_document.uri)
    source = as_source(document.source)
    location = context_in(document, source, params.position)
    span = range_of(document, source, location.token.start, location.token.end)
    fills = _knows_snippets(server)
    return [
        types.CompletionItem(
            one.label, kind=SORTS[one.sort], documentation=one.doc or None, sort_text=f"{number:04d}",
            text_edit=types.TextEdit(span, one.insert if fills else without_locations(one.insert)),
            filter_text=one.label,
            insert_text_format=types.InsertTextFormat.Snippet if fills and one.sort == "snippet" else None,
        )
        for number, one in enumerate(complete(location))
    ]  # fmt: skip


def _knows_snippets(server: LanguageServer) -> bool:
    """Whether the editor supports snippets with placeholders."""
    abilities = server.client_capabilities.text_document
    completion = abilities.completion if abilities is not None else None
    item = completion.completion_item if completion is not None else None
    return item is not None and bool(item.snippet_support)


@SERVER.feature(types.TEXT_DOCUMENT_DEFINITION)
def defined(server: LanguageServer, params: types.DefinitionParams) -> types.Location | None:
    """The extended spec, file or data block that a name refers to."""
    document = server.workspace.get_text_document(params.text_document.uri)
    source = as_source(document.source)
    found = definition(context_in(document, source, params.position), source.text, path_of(document))
    if found is None:
        return None
    if found.path != path_of(document):
        top = types.Position(0, 0)
        return types.Location(from_fs_path(found.path) or "", types.Range(top, top))
    return types.Location(document.uri, range_of(document, source, found.start, found.end))


@SERVER.feature(types.TEXT_DOCUMENT_FORMATTING)
def formatted(server: LanguageServer, params: types.DocumentFormattingParams) -> list[types.TextEdit] | None:
    """The edit that formats a document as `xpc fmt` does. None if the document has syntax errors."""
    document = server.workspace.get_text_document(params.text_document.uri)
    source = as_source(document.source)
    tree, wrong = parse(source)
    if wrong or source.damage:
        return None
    end = "\r\n" if "\r\n" in document.source else "\n"
    return [types.TextEdit(range_of(document, source, 0, len(source.text)), format_file(tree).replace("\n", end))]


@SERVER.feature(
    types.TEXT_DOCUMENT_CODE_ACTION, types.CodeActionOptions(code_action_kinds=[types.CodeActionKind.QuickFix])
)
def actions(server: LanguageServer, params: types.CodeActionParams) -> list[types.CodeAction]:
    """The edits that the findings in a range suggest, as quick fixes."""
    document = server.workspace.get_text_document(params.text_document.uri)
    out = []
    for one in checked(document).problems[:FINDINGS]:
        finding = as_protocol(document, one)
        touched = finding.range.start <= params.range.end and params.range.start <= finding.range.end
        if one.edits and touched and _own(document, one):
            source = one.primary.source if one.primary is not None else as_source(document.source)
            edits = [
                types.TextEdit(range_of(document, source, edit.span.start, edit.span.end), edit.text)
                for edit in one.edits
            ]
            change = types.WorkspaceEdit(changes={document.uri: edits})
            out.append(types.CodeAction(one.help or one.message, types.CodeActionKind.QuickFix, [finding], edit=change))
    return out


@SERVER.feature(types.TEXT_DOCUMENT_SEMANTIC_TOKENS_FULL, types.SemanticTokensLegend(list(TYPES), []))
def tokens(server: LanguageServer, params: types.SemanticTokensParams) -> types.SemanticTokens:
    """The kinds of all tokens in the protocol's encoding. A token is encoded as five numbers; its position is relative
    to the token before it.
    """
    document = server.workspace.get_text_document(params.text_document.uri)
    source, units = as_source(document.source), units_of(document)
    data: list[int] = []
    line = read = 0
    for one in coloured(source.text) if len(source.text) <= MAX_SIZE else ():
        down = source.position(one.start)[0] - 1 - line
        if down:
            line, read = line + down, source.start(line + down + 1)
        right = units(source.text[read : one.start])
        data += [down, right, units(source.text[one.start : one.end]), TYPES.index(one.sort), 0]
        read = one.start
    return types.SemanticTokens(data)
