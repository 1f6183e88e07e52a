/** The message field and its command menu, also on small screens. */

import assert from "node:assert/strict";
import { say, settled } from "./browser.mjs";
import { SCREENS, mockPages } from "./mock-page.mjs";

const onPage = mockPages();

/** Returns the menu's state: whether it is open, what is active, and whether everything lies within the window. */
function menu(page) {
  return page.evaluate(() => {
    const list = document.querySelector("#hints");
    const input = document.querySelector("#input");
    const active = document.getElementById(input.getAttribute("aria-activedescendant") ?? "");
    const within = (node, box) => {
      const { top, bottom } = node.getBoundingClientRect();
      return top >= box.top - 1 && bottom <= box.bottom + 1;
    };
    const window = { top: 0, bottom: innerHeight };
    return {
      open: !list.hidden,
      active: active?.querySelector("code").textContent ?? null,
      seen: active === null || within(active, list.getBoundingClientRect()),
      fits: within(document.querySelector("#composer"), window) && (list.hidden || within(list, window)),
      expanded: input.getAttribute("aria-expanded"),
      role: input.getAttribute("role"),
    };
  });
}

for (const [name, viewport] of Object.entries(SCREENS)) {
  onPage(`the command menu leaves the message field in place: ${name}`, { viewport, touch: name === "phone" }, async ({ page }) => {
    await page.click("#notice-line button");
    await page.focus("#input");
    const place = await page.locator(".composer-box").boundingBox();
    await page.keyboard.type("/");
    assert.deepEqual(await menu(page), { open: true, active: "/context", seen: true, fits: true, expanded: "true", role: "combobox" });
    assert.deepEqual(await page.locator(".composer-box").boundingBox(), place);
    const count = await page.locator("#hints [role=option]").count();
    for (let down = 1; down < count; down += 1) {
      await page.keyboard.press("ArrowDown");
      const { seen, fits } = await menu(page);
      assert.deepEqual([seen, fits], [true, true], `option ${down}`);
    }
    assert.equal((await menu(page)).active, "/help");
  });
}

onPage("a refused input is put back, even if it was to start a chat", {}, async ({ page }) => {
  // The second time the chat already exists; a long text waits beside the field.
  const long = "too much ".repeat(3000).trim();
  for (const [text, field] of [["this is too much", "this is too much"], [long, ""]]) {
    await say(page, text);
    await page.waitForSelector(".toast.error:has-text('too long for the model')");
    await page.waitForFunction(() => !document.querySelector("#send").disabled);
    assert.equal(await page.inputValue("#input"), field);
    assert.equal(await page.locator("#long-texts li").count(), field ? 0 : 1);
    await page.click(".toast .icon-button");
    await page.fill("#input", "");
  }
  await page.click("#long-texts button");
  await say(page, "less");
  await settled(page, 1);
  await page.click("#new-session");
  await page.waitForSelector("#welcome:not([hidden])");
  assert.equal(await page.inputValue("#input"), "");
});

onPage("a refused input comes back before what was typed since; one in flight is stored", {}, async ({ page, server }) => {
  await say(page, "hello");
  await settled(page, 1);
  const sendThenType = (text) => page.evaluate((sent) => {
    const input = document.querySelector("#input");
    for (const value of [sent, "typed since"]) {
      input.value = value;
      input.dispatchEvent(new Event("input", { bubbles: true }));
      if (value === sent) document.querySelector("#composer").requestSubmit();
    }
  }, text);
  await sendThenType("too much");
  await page.waitForSelector(".toast.error:has-text('too long for the model')");
  assert.equal(await page.inputValue("#input"), "too much\n\ntyped since");
  // The page is left before a reply can arrive.
  await page.evaluate(() => {
    const input = document.querySelector("#input");
    input.value = "not accepted yet";
    input.dispatchEvent(new Event("input", { bubbles: true }));
    document.querySelector("#composer").requestSubmit();
    dispatchEvent(new PageTransitionEvent("pagehide"));
    window.kept = sessionStorage.getItem("reseed.drafts");
  });
  assert.match(await page.evaluate(() => window.kept), /not accepted yet/);
  await settled(page, 2);
  assert.equal(await page.inputValue("#input"), "");
  assert.doesNotMatch(await page.evaluate(() => sessionStorage.getItem("reseed.drafts")), /not accepted yet/);
  assert.equal(server.worlds.size, 1);
});

/** A picture of one pixel. */
const PIXEL = Buffer.from("iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==", "base64");

for (const [name, options] of Object.entries({ desktop: {}, phone: { viewport: SCREENS.phone, touch: true } })) {
  onPage(`pictures and text files are shown, counted, sent, refused with a reason, and survive a reload: ${name}`, options, async ({ page, server }) => {
    const chips = () => page.locator("#attachments li").allInnerTexts();
    await page.fill("#input", "look");
    await page.setInputFiles("#files", [
      { name: "pixel.png", mimeType: "image/png", buffer: PIXEL },
      { name: "sea.csv", mimeType: "text/csv", buffer: Buffer.from("depth,salt\n".repeat(40)) },
      { name: "a.zip", mimeType: "application/zip", buffer: Buffer.from([80, 75, 3, 4, 0, 0, 255]) },
      { name: "big.txt", mimeType: "text/plain", buffer: Buffer.from("x".repeat(1_200_000)) },
    ]);
    await page.waitForSelector("#attachments li");
    assert.deepEqual(await chips(), ["Picture\nabout 1,105 tokens", "sea.csv\nabout 118 tokens"]);
    const refusal = await page.innerText(".toast.error");
    assert.match(refusal, /“a.zip” is not attached: it is neither a picture nor a text file. “big.txt” is too large: it has 1.2 MB, and a message at most 1.0 MB./);
    await page.click(".toast .icon-button");
    assert.match(await page.innerText("#estimate"), /^This message has about 1,224 tokens \(estimated\)\./);
    assert.equal(await page.evaluate(() => document.documentElement.scrollWidth > innerWidth), false);
    await page.reload();
    await page.waitForSelector("#attachments li");
    assert.deepEqual([await page.inputValue("#input"), (await chips()).length], ["look", 2]);
    await page.click("#send");
    await settled(page, 1);
    const [world] = server.worlds.values();
    const [{ content }] = world.entries;
    assert.deepEqual(content.map((part) => part.text?.slice(0, 24) ?? part.url.slice(0, 22)), ["look", "data:image/png;base64,", '<file name="sea.csv">\nde']);
    assert.equal(world.name, "look");
    const bubble = page.locator("#log .user .bubble");
    assert.deepEqual([await bubble.locator("img").count(), await bubble.locator("summary").innerText()], [1, "sea.csv"]);
    assert.deepEqual([await chips(), await page.inputValue("#input"), await page.locator("#estimate").isHidden()], [[], "", true]);
    // A refused message comes back whole; a model that takes no pictures refuses them at once.
    await page.setInputFiles("#files", [{ name: "pixel.png", mimeType: "image/png", buffer: PIXEL }]);
    await page.waitForSelector("#attachments li");
    await page.fill("#input", "too much");
    await page.click("#send");
    await page.waitForSelector(".toast.error:has-text('too long for the model')");
    await page.waitForSelector("#attachments li");
    assert.equal(await page.inputValue("#input"), "too much");
    await page.click("#attachments [aria-label='Remove Picture']");
    const choose = async (model) => {
      world.update({ model });
      await page.waitForFunction((name) => document.querySelector("#welcome-model").textContent === `Model: ${name}`, model);
    };
    await choose("other");
    // Pasted, and too large to be sent as it is.
    const paste = () => page.evaluate(async () => {
      const canvas = new OffscreenCanvas(2400, 1200);
      const context = canvas.getContext("2d");
      for (let x = 0; x < 2400; x += 4) for (let y = 0; y < 1200; y += 4) {
        context.fillStyle = `rgb(${(x * 7919 + y * 104729) % 256} ${(x * y) % 256} ${(x * 31 + y * 17) % 256})`;
        context.fillRect(x, y, 4, 4);
      }
      const data = new DataTransfer();
      data.items.add(new File([await canvas.convertToBlob()], "photo.png", { type: "image/png" }));
      document.querySelector("#input").dispatchEvent(new ClipboardEvent("paste", { clipboardData: data, bubbles: true, cancelable: true }));
    });
    await paste();
    await page.waitForSelector(".toast.error:has-text('the model other takes no pictures')");
    await choose("mock-1");
    await page.fill("#input", "");
    await paste();
    await page.waitForFunction(() => document.querySelector("#attachments img")?.complete);
    assert.deepEqual(await page.locator("#attachments img").evaluate((image) => [image.naturalWidth <= 1568, image.src.length < 700_000, image.src.slice(0, 16)]), [true, true, "data:image/jpeg;"]);
  });
}

onPage("files go to the chat in which they were chosen; its message waits", {}, async ({ page, server }) => {
  await say(page, "first chat");
  await settled(page, 1);
  const [{ sessionId }] = server.worlds.values();
  let release;
  const held = new Promise((resolve) => (release = resolve));
  await page.route("**/files.js", async (route) => {
    await held;
    await route.continue();
  });
  const picture = (name, buffer = PIXEL) => ({ name: `${name}.png`, mimeType: "image/png", buffer });
  const bad = picture("bad", Buffer.from("no picture"));
  const files = Array.from({ length: 9 }, (_, index) => picture(index));
  await page.fill("#input", "with pictures");
  // Two selections at once stay within the limit of 16.
  await page.setInputFiles("#files", files);
  await page.setInputFiles("#files", [...files.slice(1), bad]);
  assert.deepEqual([await page.innerText("#estimate"), await page.isDisabled("#send")], ["Reading…", true]);
  await page.click("#new-session");
  await page.waitForSelector("#welcome:not([hidden])");
  await page.fill("#input", "second chat");
  assert.equal(await page.isDisabled("#send"), false);
  release();
  await page.waitForSelector(".toast.error:has-text('at most 16 attachments')");
  assert.equal(await page.locator("#attachments li").count(), 0);
  await page.evaluate((id) => (location.hash = `#session=${id}`), sessionId);
  await page.waitForFunction(() => document.querySelectorAll("#attachments li").length === 16);
  assert.equal(await page.inputValue("#input"), "with pictures");
  assert.equal(await page.locator("#attachments [aria-label='Remove Picture 16']").count(), 1);
  await page.click("#attachments [aria-label='Remove Picture 16']");
  await page.setInputFiles("#files", [bad]);
  await page.waitForSelector(".toast.error:has-text('“bad.png” is not attached: it cannot be decoded')");
});

onPage("arrows, Tab, Enter and Escape in the menu", { wordMillis: 15 }, async ({ page }) => {
  await page.focus("#input");
  await page.keyboard.type("/re");
  const names = await page.locator("#hints code").allInnerTexts();
  assert.deepEqual(names, ["/request", "/retry", "/regenerate [MODEL]", "/rename NAME"]);
  for (const [key, active] of [["ArrowDown", "/retry"], ["ArrowDown", "/regenerate [MODEL]"], ["ArrowDown", "/rename NAME"], ["ArrowDown", "/request"], ["ArrowUp", "/rename NAME"]]) {
    await page.keyboard.press(key);
    assert.equal((await menu(page)).active, active);
    assert.deepEqual(await page.locator("#hints [aria-selected=true] code").allInnerTexts(), [active]);
  }
  await page.keyboard.press("Tab");
  assert.equal(await page.inputValue("#input"), "/rename ");
  assert.deepEqual(await menu(page), { open: false, active: null, seen: true, fits: true, expanded: null, role: null });
  assert.equal(await page.evaluate(() => document.activeElement.id), "input");
  // Enter completes a partly typed command, and sends a complete one.
  await page.fill("#input", "/hel");
  await page.keyboard.press("Enter");
  assert.equal(await page.inputValue("#input"), "/help ");
  assert.equal(await page.locator("dialog").count(), 0);
  await page.keyboard.press("Enter");
  await page.waitForSelector("dialog:has-text('Commands and keys')");
  await page.keyboard.press("Escape");
  // Escape closes the menu; only a second one stops the answer.
  await say(page, "a long one, slowly");
  await page.waitForFunction(() => /Sentence 2/.test(document.querySelector("#tail")?.innerText));
  await page.focus("#input");
  await page.keyboard.type("/");
  await page.keyboard.press("Escape");
  assert.equal((await menu(page)).open, false);
  assert.equal(await page.inputValue("#input"), "/");
  assert.equal(await page.locator("#stop").isVisible(), true);
  await page.keyboard.press("Escape");
  await page.waitForSelector("[data-ended=cancelled]");
  // One more letter opens it again; a click chooses an option and leaves the focus in the field.
  await page.keyboard.type("co");
  assert.equal((await menu(page)).active, "/context");
  await page.click("#hints [role=option]:has-text('/compact')");
  assert.equal(await page.inputValue("#input"), "/compact ");
  assert.equal(await page.evaluate(() => document.activeElement.id), "input");
});
