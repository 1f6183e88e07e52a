/** Assembles the page: application, views, keyboard shortcuts and address. */

import { App } from "./app.js";
import { Branching } from "./branching.js";
import { ChatView } from "./chat.js";
import { parseCommand } from "./commands.js";
import { ComposerView } from "./composer.js";
import { NAME_CHARS_MAX, confirm, help, instructionsFault, prompt } from "./dialogs.js";
import { byId, isSearchKeys } from "./dom.js";
import { frames } from "./frames.js";
import { GaugeView } from "./gauge.js";
import { LinesView } from "./lines.js";
import { toggleMenu } from "./menu.js";
import { PresenceView } from "./presence-view.js";
import { Searching } from "./searching.js";
import { SessionsView, sessionHash, sessionOfHash } from "./sessions.js";
import { clearToasts, clearTyped, toast } from "./toasts.js";
import { TreeView } from "./tree-view.js";

/** Characters of an answer that a screen reader announces; the rest is in the chat. */
const ANNOUNCE_CHARS_MAX = 1000;
const title = byId("title", HTMLElement);
const announcer = byId("announcer", HTMLElement);
const sidebar = byId("sidebar", HTMLElement);
const sidebarOpen = byId("sidebar-open", HTMLButtonElement);
const settingsOpen = byId("settings-open", HTMLButtonElement);
const welcomeModel = byId("welcome-model", HTMLButtonElement);
const chatMenu = byId("chat-menu", HTMLButtonElement);
const backdrop = byId("backdrop", HTMLElement);
const narrow = matchMedia("(max-width: 760px)");

/** Whether the token dialog is open, or was closed since the server asked. */
let asked = false;

const app = new App({
  onChange: frames(render),
  onNotice: toast,
  onShow: (sessionId) => {
    clearToasts();
    composer.show(sessionId ?? "");
  },
  onMade: (sessionId) => composer.made(sessionId),
  onAnnounce: (text) => (announcer.textContent = text.slice(0, ANNOUNCE_CHARS_MAX)),
  onContent: (content) => composer.give(content),
  onTarget: (sessionId) => {
    const hash = sessionId === null ? "" : sessionHash(sessionId);
    if (location.hash !== hash) history.pushState(null, "", hash || location.pathname + location.search);
  },
});
const chat = new ChatView(app, {
  edit: () => undefined,
  regenerate: (entryId, asksModel) => void branching.regenerate(entryId, asksModel),
  goOnFrom: (entryId) => void branching.goOnFrom(entryId),
  label: (entryId) => void branching.label(entryId),
  fork: (entry) => void app.moves.fork(entry.entryId, entry.type === "message" && entry.role === "user" ? "before" : "at"),
  switchTo: (entryId, index, count) => void branching.switchTo(entryId, index, count),
  showTree: () => tree.show(),
  write: () => composer.focus(),
  asks,
});
const tree = new TreeView(app, { onChoose: (entryId) => void branching.goTo(entryId), onShow: () => request?.close() });
/** @type {import("./request-view.js").RequestView | null} the panel of the next request, once it was opened */
let request = null;
/** @type {import("./wire-view.js").WireView | null} the developers' drawer, once it was opened */
let wire = null;
const gauge = new GaugeView(app, {
  onRequest: () => void openRequest(),
  onCompact: () => void openCompact(),
  onTools: () => void openTools(),
  onTimeline: () => void openTimeline(),
  onReveal: (entryId) => {
    if (!chat.reveal(entryId)) toast({ kind: "info", message: "That message is further up, or on another branch." });
  },
});
const lines = new LinesView(app, login);
const presence = new PresenceView(app);
const sessions = new SessionsView(app, {
  onRename: (item) => void rename(item.sessionId, item.name),
  onDelete: (item) => void remove(item.sessionId, item.name),
  onChosen: (sessionId) => {
    openSidebar(false);
    app.show(sessionId);
    composer.focus();
  },
  onSearch: (query) => {
    openSidebar(false);
    searching.open({ query, scope: "all" });
  },
});
const searching = new Searching(app, {
  onFound: (entryId) => {
    if (!narrow.matches) chat.reveal(entryId);
  },
  reveal: (entryId) => tree.reveal(entryId),
});
const branching = new Branching(app, {
  onGo: () => narrow.matches && tree.close(),
  onEnd: () => chat.toEnd(),
  onReveal: (entryId) => void chat.reveal(entryId),
  onWrite: () => composer.focus(),
});
const composer = new ComposerView(app, { onSubmit: submit, onEditLast: () => chat.editLast() });

function render() {
  const name = app.snapshot?.name || (app.target === null ? "New chat" : app.loading ? "…" : "Untitled");
  title.textContent = name;
  const waits = (app.snapshot?.approvals.length ?? 0) > 0;
  document.title = app.target === null ? "reseed" : `${waits ? "(!) " : ""}${name} · reseed`;
  lines.render();
  presence.render();
  sessions.render();
  searching.render();
  gauge.render();
  composer.render();
  renderModel();
  chat.render();
  tree.render();
  request?.render();
  wire?.render();
  if (app.status.phase === "open") asked = false;
  if (app.asksForToken && !asked) void login();
}

/**
 * @param {import("reseed-protocol").Part[]} content
 * @param {"steer"} [whenBusy]
 * @returns {Promise<boolean>} whether it was accepted
 */
async function submit(content, whenBusy) {
  const [first] = content;
  const command = content.length === 1 && first.type === "text" ? parseCommand(first.text) : null;
  clearTyped();
  if (!command) {
    chat.toEnd();
    return app.sending.send(content, whenBusy && { whenBusy });
  }
  if (!command.known) {
    toast({ kind: "error", message: `There is no command /${command.name}. Type /help to see what there is.` }, true);
    return false;
  }
  return run(command.name, command.rest);
}

/**
 * @param {string} name
 * @param {string} rest
 */
async function run(name, rest) {
  if (app.snapshot === null && !["help", "new", "search", "model", "settings", "strategy"].includes(name)) {
    toast({ kind: "info", message: "Write a message first: this chat is still empty." });
    return false;
  }
  const leaf = app.snapshot && app.snapshot.leafId !== "root" ? app.snapshot.leafId : null;
  switch (name) {
    case "context": gauge.show(); break;
    case "frames": void openWire(); break;
    case "request": void openRequest(); break;
    case "history": void openTimeline(); break;
    case "tools": void openTools(); break;
    case "compact":
      if (!instructionsFit(rest)) return false;
      await app.context.compact(rest ? { instructions: rest } : {});
      break;
    case "preview":
      if (!instructionsFit(rest)) return false;
      void openCompact(rest);
      break;
    case "undo": await app.context.undo(); break;
    case "retry": await app.retry(); break;
    case "regenerate": {
      if (!app.can("navigate")) {
        toast({ kind: "info", message: "This server cannot regenerate answers." });
        return false;
      }
      const last = app.snapshot?.path.entries.findLast((entry) => entry.type === "message" && entry.role !== "tool");
      if (last?.type === "message" && last.role === "user") {
        toast({ kind: "info", message: "The last message has no answer yet. If its answer failed, use /retry." });
        return false;
      }
      if (last) await branching.regenerate(last.entryId, false, rest || undefined);
      break;
    }
    case "export": void openExport(); break;
    case "new": app.show(null); break;
    case "search": searching.open(rest ? { query: rest } : {}); break;
    case "tree": tree.show(); break;
    case "label":
      if (!nameFits(rest)) return false;
      if (leaf) await app.moves.label(app.tree.saidAt(leaf) ?? leaf, rest);
      break;
    case "help": await help(); break;
    case "settings": void openSettings(); break;
    case "model":
      if (rest) await app.setModel(rest);
      else void openSettings();
      break;
    case "steer":
    case "strategy":
    case "rename":
      if (!rest) {
        toast({ kind: "error", message: `Write ${name === "steer" ? "a text" : "a name"} after /${name}.` }, true);
        return false;
      }
      if (name === "steer") return app.sending.send([{ type: "text", text: rest }], { whenBusy: "steer" });
      if (name === "strategy") await app.quietly(app.context.setStrategy(rest));
      else if (!nameFits(rest)) return false;
      else if (app.target) await app.rename(app.target, rest);
  }
  return true;
}

/**
 * Returns true if the server accepts the instructions; otherwise shows why not.
 * @param {string} text
 */
function instructionsFit(text) {
  const message = instructionsFault(text);
  if (message) toast({ kind: "error", message }, true);
  return message === "";
}

/**
 * Returns true if the name is short enough; otherwise shows why not.
 * @param {string} text
 */
function nameFits(text) {
  if (text.length <= NAME_CHARS_MAX) return true;
  toast({ kind: "error", message: `A name has at most ${NAME_CHARS_MAX} characters, this one has ${text.length}. Shorten it and try again.` }, true);
  return false;
}

/**
 * Handles a new approval card. It takes the focus only if the user is writing nothing and reads the end of the chat.
 * @param {import("./approvals.js").ApprovalCard} card
 */
function asks(card) {
  const at = document.activeElement;
  const idle = at === document.body || (at === composer.input && composer.text === "");
  const touch = matchMedia("(pointer: coarse)").matches;
  if (idle && !touch && !app.readOnly && chat.follow.on) card.node.focus({ preventScroll: true });
}

/** Returns true if a dialog is open: another one must wait for it. */
function isAsking() {
  return document.querySelector("dialog[open]") !== null;
}

async function openTools() {
  if (!app.snapshot) return;
  const part = await app.part(async () => await import("./tools-dialog.js"));
  if (part && app.snapshot && !isAsking()) new part.ToolsDialog(app).show();
}

async function openSettings() {
  if (app.status.phase !== "open") return;
  const part = await app.part(async () => await import("./settings-dialog.js"));
  if (part && !isAsking()) new part.SettingsDialog(app).show();
}

async function openExport() {
  const part = await app.part(async () => await import("./export-dialog.js"));
  if (part && !isAsking()) part.showExport(app, () => void printChat());
}

/** Prints the whole branch. The browser's own command prints what is loaded. */
async function printChat() {
  const { open } = app;
  if ((await open?.loadAll()) && app.open === open) print();
}

/** Opens the menu of the displayed chat. */
function openChatMenu() {
  const { snapshot } = app;
  /** @type {import("./menu.js").MenuItem[]} */
  const ofChat = snapshot === null ? [] : [
    { icon: "edit", label: "Rename…", run: () => void rename(snapshot.sessionId, snapshot.name) },
    { icon: "clock", label: "Context over the chat…", run: () => void openTimeline() },
    { icon: "export", label: "Export…", run: () => void openExport() },
    { icon: "code", label: "Frames, for developers", run: () => void openWire() },
    { icon: "print", label: "Print…", run: () => void printChat() },
  ];
  toggleMenu(chatMenu, "Actions for this chat", [
    ...ofChat,
    { icon: "theme", label: "Switch between light and dark", run: switchTheme },
    { icon: "help", label: "Commands and keys", run: () => void help() },
  ]);
}

/** @param {import("./request-view.js").Past | null} [past] a past request; absent: the next one */
async function openRequest(past) {
  const part = await app.part(async () => await import("./request-view.js"));
  // Another chat was opened meanwhile.
  if (past && past.sessionId !== app.target) return;
  if (part) request ??= new part.RequestView(app, { onShow: () => tree.close(), onClose: () => gauge.button.focus() });
  request?.show(past);
}

/** Shows the live frames of the chat. */
async function openWire() {
  const part = await app.part(async () => await import("./wire-view.js"));
  if (!part) return;
  if (!wire) {
    wire = new part.WireView(app, () => composer.focus());
    byId("page", HTMLElement).append(wire.node);
  }
  wire.show();
}

/** Shows the context over the chat. */
async function openTimeline() {
  const part = app.snapshot && (await app.part(async () => await import("./timeline-dialog.js")));
  if (!part || isAsking()) return;
  const onReveal = (/** @type {string} */ entryId) => {
    if (!chat.reveal(entryId)) void searching.go({ sessionId: app.target ?? "", entryId });
  };
  await part.showTimeline(app, { onReveal, onSeen: (seen) => void openRequest(seen) });
}

/** Shows the model on the start screen. */
function renderModel() {
  const model = app.snapshot?.model ?? app.models?.model;
  settingsOpen.hidden = !model;
  welcomeModel.hidden = !model;
  if (model) welcomeModel.textContent = `Model: ${model}`;
}

/** @param {string} [instructions] */
async function openCompact(instructions) {
  const part = app.context.mayCompact && (await app.part(async () => await import("./compact-dialog.js")));
  if (part && !isAsking()) new part.CompactDialog(app, instructions).show();
  else if (part === false) toast({ kind: "info", message: app.readOnly ? "You have read-only access." : "The chat is being summarised already." });
}

/**
 * @param {string} sessionId
 * @param {string} value
 */
async function rename(sessionId, value) {
  const name = await prompt({ title: "Rename chat", label: "Name", action: "Rename", value, charsMax: NAME_CHARS_MAX });
  if (name) await app.rename(sessionId, name);
}

/**
 * @param {string} sessionId
 * @param {string} name
 */
async function remove(sessionId, name) {
  const text = `“${name || "Untitled"}” and everything said in it will be gone for good.`;
  if (await confirm("Delete this chat?", text, "Delete")) await app.remove(sessionId);
}

async function login() {
  if (isAsking()) return;
  asked = true;
  const token = await prompt({
    title: "Sign in",
    text: "This server asks for a token. It is kept in this tab only.",
    label: "Token",
    action: "Sign in",
    secret: true,
  });
  if (!token) return;
  asked = false;
  app.login(token);
}

/** @param {boolean} open */
function openSidebar(open) {
  const over = open && narrow.matches;
  sidebar.classList.toggle("open", over);
  backdrop.hidden = !over;
  byId("page", HTMLElement).inert = over;
  sidebarOpen.setAttribute("aria-expanded", String(over));
  if (over) byId("sidebar-close", HTMLElement).focus();
  else if (sidebar.contains(document.activeElement) && narrow.matches) sidebarOpen.focus();
}

function switchTheme() {
  const root = document.documentElement;
  const dark = root.dataset.theme ? root.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
  root.dataset.theme = dark ? "light" : "dark";
  try {
    localStorage.setItem("reseed.theme", root.dataset.theme);
  } catch {
    // Storage is disabled: the choice lasts until the page is closed.
  }
}

/** @param {KeyboardEvent} event */
function onKey(event) {
  if (isAsking() || event.defaultPrevented || event.isComposing) return;
  if (isSearchKeys(event) && app.can("search_history")) {
    event.preventDefault();
    openSidebar(false);
    return searching.open();
  }
  const typing = event.target instanceof Element ? event.target.closest("input, textarea") : null;
  if (event.key === "Escape") {
    if (sidebar.classList.contains("open")) openSidebar(false);
    // In another field, Escape clears that field.
    else if (!gauge.open && (!typing || typing === composer.input)) void app.stop();
    return;
  }
  // The message field keeps these keys only while it scrolls itself.
  if ((event.key === "PageUp" || event.key === "PageDown") && typing === composer.input && composer.input.scrollHeight <= composer.input.clientHeight) {
    event.preventDefault();
    chat.page(event.key === "PageUp" ? -1 : 1);
  }
  if (typing || event.ctrlKey || event.metaKey || event.altKey || (event.key !== "/" && event.key !== "?")) return;
  event.preventDefault();
  if (event.key === "/") composer.input.focus();
  else void help();
}

byId("skip", HTMLElement).addEventListener("click", (event) => {
  event.preventDefault();
  composer.input.focus();
});
byId("new-session", HTMLElement).addEventListener("click", () => {
  openSidebar(false);
  app.show(null);
  composer.focus();
});
sidebarOpen.addEventListener("click", () => openSidebar(true));
byId("sidebar-close", HTMLElement).addEventListener("click", () => openSidebar(false));
backdrop.addEventListener("click", () => openSidebar(false));
narrow.addEventListener("change", () => openSidebar(false));
settingsOpen.addEventListener("click", () => void openSettings());
welcomeModel.addEventListener("click", () => void openSettings());
chatMenu.addEventListener("click", openChatMenu);
addEventListener("beforeprint", () => chat.drawAll(true));
addEventListener("afterprint", () => chat.drawAll(false));
byId("theme", HTMLElement).addEventListener("click", switchTheme);
document.addEventListener("keydown", onKey);
addEventListener("hashchange", () => app.show(sessionOfHash(location.hash)));
addEventListener("popstate", () => app.show(sessionOfHash(location.hash)));

app.show(sessionOfHash(location.hash));
render();
composer.focus();
