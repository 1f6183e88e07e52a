/** Puts the page together: the application, its views, the keys, the address. */

import { App } from "./app.js";
import { ChatView } from "./chat.js";
import { parseCommand } from "./commands.js";
import { ComposerView } from "./composer.js";
import { confirm, help, prompt, showText } from "./dialogs.js";
import { byId } from "./dom.js";
import { GaugeView } from "./gauge.js";
import { LinesView } from "./lines.js";
import { SessionsView, sessionHash, sessionOfHash } from "./sessions.js";
import { toast } from "./toasts.js";

/** Characters of an answer that a screen reader reads by itself; the rest is in the chat. */
const ANNOUNCE_CHARS_MAX = 1000;
/** Characters of a session's name, as the protocol has it. */
const NAME_CHARS_MAX = 200;

const title = byId("title", HTMLElement);
const announcer = byId("announcer", HTMLElement);
const sidebar = byId("sidebar", HTMLElement);
const sidebarOpen = byId("sidebar-open", HTMLButtonElement);
const backdrop = byId("backdrop", HTMLElement);
const narrow = matchMedia("(max-width: 760px)");

let drawn = true;
/** Whether the dialog for the token is open, or was closed since the server asked. */
let asked = false;

const app = new App({
  onChange: schedule,
  onNotice: toast,
  onAnnounce: (text) => (announcer.textContent = text.slice(0, ANNOUNCE_CHARS_MAX)),
  onTarget: (sessionId) => {
    const hash = sessionId === null ? "" : sessionHash(sessionId);
    if (location.hash !== hash) history.pushState(null, "", hash || location.pathname + location.search);
  },
});
const chat = new ChatView(app);
const gauge = new GaugeView(app);
const lines = new LinesView(app, login);
const sessions = new SessionsView(app, {
  onRename: (item) => void rename(item.sessionId, item.name),
  onDelete: (item) => void remove(item.sessionId, item.name),
  onChosen: () => {
    openSidebar(false);
    composer.focus();
  },
});
const composer = new ComposerView(app, submit);
gauge.onText = () => void showContext();

/** Draws at most once a frame, however many events came. */
function schedule() {
  if (!drawn) return;
  drawn = false;
  requestAnimationFrame(() => {
    drawn = true;
    render();
  });
}

function render() {
  const name = app.state?.name || (app.target === null ? "New chat" : app.loading ? "…" : "Untitled");
  title.textContent = name;
  document.title = app.target === null ? "reseed" : `${name} · reseed`;
  lines.render();
  sessions.render();
  gauge.render();
  composer.render();
  chat.render();
  if (app.status.phase === "open") asked = false;
  if (app.status.phase === "login" && !asked) void login();
}

/**
 * @param {string} text
 * @returns {Promise<boolean>} whether it was taken
 */
async function submit(text) {
  const command = parseCommand(text);
  if (!command) {
    chat.toEnd();
    return app.send(text);
  }
  if (!command.known) {
    toast({ kind: "error", message: `There is no command /${command.name}. Type /help to see what there is.` });
    return false;
  }
  return run(command.name, command.rest);
}

/**
 * @param {string} name
 * @param {string} rest
 */
async function run(name, rest) {
  if (app.state === null && !["help", "new"].includes(name)) {
    toast({ kind: "info", message: "Say something first: there is no session yet." });
    return false;
  }
  switch (name) {
    case "context": gauge.show(); break;
    case "compact": await app.compact(rest || undefined); break;
    case "retry": await app.retry(); break;
    case "new": await app.show(null); break;
    case "help": await help(); break;
    case "model":
    case "strategy":
    case "rename":
      if (!rest) {
        toast({ kind: "error", message: `/${name} needs a name behind it.` });
        return false;
      }
      if (name === "model") await app.setModel(rest);
      else if (name === "strategy") await app.setStrategy(rest);
      else if (app.target) await app.rename(app.target, rest.slice(0, NAME_CHARS_MAX));
  }
  return true;
}

async function showContext() {
  const text = await app.contextText();
  if (text !== null) await showText("The next request, word for word", text);
}

/**
 * @param {string} sessionId
 * @param {string} value
 */
async function rename(sessionId, value) {
  const name = await prompt({ title: "Rename session", label: "Name", action: "Rename", value, charsMax: NAME_CHARS_MAX });
  if (name) await app.rename(sessionId, name);
}

/**
 * @param {string} sessionId
 * @param {string} name
 */
async function remove(sessionId, name) {
  const text = `“${name || "Untitled"}” and everything said in it will be gone for good.`;
  if (await confirm("Delete this session?", text, "Delete")) await app.remove(sessionId);
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
    // Storage is switched off: the choice lasts as long as the page.
  }
}

/** @param {KeyboardEvent} event */
function onKey(event) {
  if (document.querySelector("dialog[open]") || event.defaultPrevented || event.isComposing) return;
  const typing = event.target instanceof Element ? event.target.closest("input, textarea") : null;
  if (event.key === "Escape") {
    if (sidebar.classList.contains("open")) openSidebar(false);
    // In another field the key clears that field.
    else if (!gauge.open && (!typing || typing === composer.input)) void app.stop();
    return;
  }
  if (event.key === "/" && !typing && !event.ctrlKey && !event.metaKey && !event.altKey) {
    event.preventDefault();
    composer.input.focus();
  }
}

byId("skip", HTMLElement).addEventListener("click", (event) => {
  event.preventDefault();
  composer.input.focus();
});
byId("new-session", HTMLElement).addEventListener("click", () => {
  openSidebar(false);
  void app.show(null);
  composer.focus();
});
sidebarOpen.addEventListener("click", () => openSidebar(true));
byId("sidebar-close", HTMLElement).addEventListener("click", () => openSidebar(false));
backdrop.addEventListener("click", () => openSidebar(false));
narrow.addEventListener("change", () => openSidebar(false));
byId("theme", HTMLElement).addEventListener("click", switchTheme);
document.addEventListener("keydown", onKey);
addEventListener("hashchange", () => void app.show(sessionOfHash(location.hash)));
addEventListener("popstate", () => void app.show(sessionOfHash(location.hash)));
addEventListener("online", () => app.connection.nudge());
document.addEventListener("visibilitychange", () => {
  if (document.hidden) return;
  app.connection.nudge();
  app.sessions.listSoon();
});

app.start(sessionOfHash(location.hash));
render();
composer.focus();
