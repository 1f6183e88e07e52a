/** Assembles the page: application, views, keyboard shortcuts and address. */

import { App } from "./app.js";
import { ChatView } from "./chat.js";
import { parseCommand } from "./commands.js";
import { CompactDialog } from "./compact-dialog.js";
import { ComposerView } from "./composer.js";
import { askToGo, confirm, help, instructionsFault, prompt } from "./dialogs.js";
import { byId, isSearchKeys } from "./dom.js";
import { frames } from "./frames.js";
import { GaugeView } from "./gauge.js";
import { LinesView } from "./lines.js";
import { PresenceView } from "./presence-view.js";
import { RequestView } from "./request-view.js";
import { Searching } from "./searching.js";
import { SessionsView, sessionHash, sessionOfHash } from "./sessions.js";
import { SettingsDialog } from "./settings-dialog.js";
import { clearToasts, clearTyped, toast } from "./toasts.js";
import { ToolsDialog } from "./tools-dialog.js";
import { TreeView } from "./tree-view.js";

/** Characters of an answer that a screen reader announces; the rest is in the chat. */
const ANNOUNCE_CHARS_MAX = 1000;
/** Maximum length of a session name in the protocol, in characters. */
const NAME_CHARS_MAX = 200;

/** Milliseconds to wait until a move shows in the chat. */
const SHOWN_MS = 5000;

const title = byId("title", HTMLElement);
const announcer = byId("announcer", HTMLElement);
const sidebar = byId("sidebar", HTMLElement);
const sidebarOpen = byId("sidebar-open", HTMLButtonElement);
const settingsOpen = byId("settings-open", HTMLButtonElement);
const welcomeModel = byId("welcome-model", HTMLButtonElement);
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
  onText: (text) => composer.give(text),
  onTarget: (sessionId) => {
    const hash = sessionId === null ? "" : sessionHash(sessionId);
    if (location.hash !== hash) history.pushState(null, "", hash || location.pathname + location.search);
  },
});
const chat = new ChatView(app, {
  edit: () => undefined,
  goOnFrom: (entryId) => void goOnFrom(entryId),
  label: (entryId) => void label(entryId),
  fork: (entry) => void app.moves.fork(entry.entryId, entry.type === "message" && entry.role === "user" ? "before" : "at"),
  switchTo: (entryId, index, count) => void switchTo(entryId, index, count),
  showTree: () => tree.show(),
  write: () => composer.focus(),
  asks,
});
const tree = new TreeView(app, { onChoose: (entryId) => void goTo(entryId), onShow: () => request.close() });
const request = new RequestView(app, { onShow: () => tree.close(), onClose: () => gauge.button.focus() });
const gauge = new GaugeView(app, {
  onRequest: () => request.show(),
  onCompact: () => openCompact(),
  onTools: () => openTools(),
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
  request.render();
  if (app.status.phase === "open") asked = false;
  if (app.asksForToken && !asked) void login();
}

/**
 * @param {string} text
 * @param {"steer"} [whenBusy]
 * @returns {Promise<boolean>} whether it was accepted
 */
async function submit(text, whenBusy) {
  const command = parseCommand(text);
  clearTyped();
  if (!command) {
    chat.toEnd();
    return app.sending.send(text, text, whenBusy && { whenBusy });
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
    case "request": request.show(); break;
    case "tools": openTools(); break;
    case "compact":
      if (!instructionsFit(rest)) return false;
      await app.context.compact(rest ? { instructions: rest } : {});
      break;
    case "preview":
      if (!instructionsFit(rest)) return false;
      openCompact(rest);
      break;
    case "undo": await app.context.undo(); break;
    case "retry": await app.retry(); break;
    case "new": app.show(null); break;
    case "search": searching.open(rest ? { query: rest } : {}); break;
    case "tree": tree.show(); break;
    case "label":
      if (!nameFits(rest)) return false;
      if (leaf) await app.moves.label(app.tree.saidAt(leaf) ?? leaf, rest);
      break;
    case "help": await help(); break;
    case "settings": openSettings(); break;
    case "model":
      if (rest) await app.setModel(rest);
      else openSettings();
      break;
    case "steer":
    case "strategy":
    case "rename":
      if (!rest) {
        toast({ kind: "error", message: `Write ${name === "steer" ? "a text" : "a name"} after /${name}.` }, true);
        return false;
      }
      if (name === "steer") return app.sending.send(rest, rest, { whenBusy: "steer" });
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

function openTools() {
  if (app.snapshot) new ToolsDialog(app).show();
}

function openSettings() {
  if (app.status.phase === "open") new SettingsDialog(app).show();
}

/** Shows the model on the start screen. */
function renderModel() {
  const model = app.snapshot?.model ?? app.models?.model;
  settingsOpen.hidden = !model;
  welcomeModel.hidden = !model;
  if (model) welcomeModel.textContent = `Model: ${model}`;
}

/** @param {string} [instructions] */
function openCompact(instructions) {
  if (app.context.mayCompact) new CompactDialog(app, instructions).show();
  else toast({ kind: "info", message: app.readOnly ? "You have read-only access." : "The chat is being summarised already." });
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

// Tree

/** Says what must stop before the session can move. */
function stopping() {
  if (!app.moves.busy) return [];
  const { waiting } = app.moves;
  const back = waiting === 0 ? "" : waiting === 1 ? " The message that waits comes back to the message field." : ` The ${waiting} messages that wait come back to the message field.`;
  return [`${app.snapshot?.turn ? "An answer is being written" : "A summary is being written"}: going there stops it.${back}`];
}

/**
 * Asks how to continue from a message on the path, and goes there.
 * @param {string} entryId
 */
async function goOnFrom(entryId) {
  const text = ["What was said after it stays on its own branch; what you say next begins another."];
  const chosen = await askToGo({ title: "Continue from here", text: [...text, ...stopping()], leaves: true, action: "Continue from here" });
  if (!chosen) return;
  // The end of the chat shows the progress of a summary.
  chat.toEnd();
  if (await app.moves.go(entryId, "at", chosen.leaving)) composer.focus();
}

/**
 * Asks how to go to an entry of the tree, and goes there.
 * @param {string} entryId
 */
async function goTo(entryId) {
  const { snapshot } = app;
  if (!snapshot) return;
  const onPath = snapshot.path.entries.some((entry) => entry.entryId === entryId);
  if (app.readOnly || entryId === snapshot.leafId) {
    if (narrow.matches) tree.close();
    if (onPath) chat.reveal(entryId);
    return;
  }
  const preview = app.tree.nodes.get(entryId)?.preview ?? "";
  const tip = { value: /** @type {const} */ ("tip"), name: "Read on to the newest message below it" };
  const at = { value: /** @type {const} */ ("at"), name: "Continue right after it, on a new branch" };
  const show = { value: /** @type {const} */ ("show"), name: "Only show it in the chat" };
  const places = onPath ? [show, at] : [tip, at];
  const chosen = await askToGo({ title: "Go to this message", text: [preview && `“${preview}”`, ...stopping()].filter(Boolean), places, leaves: true, action: "Go there" });
  if (!chosen) return;
  if (narrow.matches) tree.close();
  if (chosen.place === "show") return void chat.reveal(entryId);
  chat.toEnd();
  await app.moves.go(entryId, chosen.place ?? "at", chosen.leaving);
}

/**
 * Switches to another version of a message, and offers to bring along a summary of the abandoned one.
 * @param {string} entryId
 * @param {number} index
 * @param {number} count
 */
async function switchTo(entryId, index, count) {
  const left = app.snapshot?.leafId;
  const about = stopping();
  if (about.length > 0 && !(await confirm("Go to the other version?", about.join(" "), "Stop and go there"))) return;
  const moved = await app.moves.go(entryId, "tip");
  if (!moved) return;
  // The reply arrives before the events that move the view.
  await app.until((snapshot) => snapshot.path.entries.some((entry) => entry.entryId === entryId), SHOWN_MS);
  requestAnimationFrame(() => chat.reveal(entryId));
  const here = moved.leafId;
  if (left === undefined || left === "root" || here === "root") return;
  const bring = async () => {
    const text = "A summary of the branch that you left is put where you are now, so that the model knows of it.";
    const about = "What should the summary focus on? (optional)";
    const instructions = await prompt({ title: "Bring a summary along", text, label: about, action: "Bring it along", instructs: true, mayBeEmpty: true });
    if (instructions !== null) await app.moves.bringSummary(left, here, { summarize: true, instructions });
  };
  toast({ kind: "info", message: `Version ${index + 1} of ${count}.`, action: { label: "Bring a summary along", run: () => void bring() } });
}

/** @param {string} entryId */
async function label(entryId) {
  const value = app.tree.labelOf(entryId) ?? "";
  const text = "A name for this message, to find it in the tree. Leave it empty to take the name away.";
  const name = await prompt({ title: "Label", text, label: "Label", action: "Save", value, charsMax: NAME_CHARS_MAX, mayBeEmpty: true });
  if (name !== null && name !== value) await app.moves.label(entryId, name);
}

async function login() {
  if (document.querySelector("dialog[open]")) return;
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
  if (document.querySelector("dialog[open]") || event.defaultPrevented || event.isComposing) return;
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
settingsOpen.addEventListener("click", openSettings);
welcomeModel.addEventListener("click", openSettings);
byId("theme", HTMLElement).addEventListener("click", switchTheme);
document.addEventListener("keydown", onKey);
addEventListener("hashchange", () => app.show(sessionOfHash(location.hash)));
addEventListener("popstate", () => app.show(sessionOfHash(location.hash)));

app.show(sessionOfHash(location.hash));
render();
composer.focus();
