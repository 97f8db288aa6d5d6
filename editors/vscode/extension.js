// Starts `xpc lsp` for .xp files and stops it with the window.
const { workspace } = require("vscode");
const { LanguageClient } = require("vscode-languageclient/node");

let client;

exports.activate = () => {
  const folder = workspace.workspaceFolders?.[0]?.uri.fsPath ?? "";
  const command = workspace.getConfiguration("xpc").get("command").replace("${workspaceFolder}", folder);
  client = new LanguageClient(
    "xpc",
    { command, args: ["lsp"] },
    { documentSelector: [{ language: "xpc" }] },
  );
  return client.start();
};

exports.deactivate = () => client?.stop();
