/**
 * Reads files that a person attaches to a message: pictures and text files.
 *
 * A picture that is larger than a model looks at is scaled down. One that cannot be decoded, and everything else that
 * does not fit, is refused with the reason.
 *
 * @typedef {import("reseed-protocol").Part} Part
 */

import { filePart } from "./attached.js";
import { number } from "./dom.js";

/** What providers take. */
const PICTURES = ["image/png", "image/jpeg", "image/gif", "image/webp"];
/** Bytes of a picture that is sent as it is. */
const PICTURE_BYTES_MAX = 300_000;
/** Bytes of a scaled picture. If it has more, a smaller one is tried. */
const SCALED_BYTES_MAX = 450_000;
/** Pixels of the longer side of a scaled picture; models scale larger ones down themselves. */
const SIDES_PIXELS = [1568, 1024, 640];
const QUALITY = 0.85;

/** @param {number} bytes */
const megabytes = (bytes) => `${(bytes / 1_000_000).toFixed(1)} MB`;

/**
 * Reads files until the message is full.
 * @param {readonly File[]} files
 * @param {object} limits
 * @param {number} limits.bytesLeft bytes that the message has room for
 * @param {number} limits.bytesMax bytes of a whole message
 * @param {string | null} limits.blind the model, if it takes no pictures
 * @returns {Promise<{ parts: Part[], refusals: string[] }>}
 */
export async function readFiles(files, { bytesLeft, bytesMax, blind }) {
  /** @type {Part[]} */
  const parts = [];
  const refusals = [];
  let left = bytesLeft;
  for (const file of files) {
    const read = await readFile(file, bytesMax, blind).catch(() => `“${file.name}” could not be read.`);
    if (typeof read === "string") {
      refusals.push(read);
      continue;
    }
    const bytes = bytesOf(read);
    if (bytes > left) {
      refusals.push(`“${file.name}” does not fit: with it the message has more than ${megabytes(bytesMax)}. Send less at once.`);
      continue;
    }
    left -= bytes;
    parts.push(read);
  }
  return { parts, refusals };
}

/**
 * @param {File} file
 * @param {number} bytesMax
 * @param {string | null} blind
 * @returns {Promise<Part | string>} the reason if it is refused
 */
async function readFile(file, bytesMax, blind) {
  const { name, type, size } = file;
  if (PICTURES.includes(type)) {
    if (blind !== null) return `“${name}” is not attached: the model ${blind} takes no pictures. Choose another one with /model.`;
    const bitmap = await createImageBitmap(file).catch(() => null);
    if (!bitmap) return `“${name}” is not attached: it cannot be decoded. Check the file, or save it as PNG or JPEG.`;
    try {
      const isSmall = size <= PICTURE_BYTES_MAX && Math.max(bitmap.width, bitmap.height) <= SIDES_PIXELS[0];
      return { type: "image", url: await urlOf(isSmall ? file : await scaled(bitmap)) };
    } finally {
      bitmap.close();
    }
  }
  if (type.startsWith("image/") && type !== "image/svg+xml") return `“${name}” is not attached: models take PNG, JPEG, GIF and WebP pictures.`;
  if (size > bytesMax) return `“${name}” is too large: it has ${megabytes(size)}, and a message at most ${megabytes(bytesMax)}.`;
  const text = decoded(await file.arrayBuffer());
  if (text === null) return `“${name}” is not attached: it is neither a picture nor a text file.`;
  if (text.trim() === "") return `“${name}” is empty (${number(size)} bytes).`;
  return filePart(name, text);
}

/** @param {Part} part */
function bytesOf(part) {
  return new TextEncoder().encode(JSON.stringify(part)).length;
}

/**
 * Returns the text of a file, or null if it is none.
 * @param {ArrayBuffer} bytes
 */
function decoded(bytes) {
  try {
    const text = new TextDecoder("utf-8", { fatal: true }).decode(bytes);
    return text.includes("\0") ? null : text;
  } catch {
    return null;
  }
}

/**
 * @param {Blob} blob
 * @returns {Promise<string>}
 */
function urlOf(blob) {
  return new Promise((resolve, reject) => {
    const reader = new FileReader();
    reader.addEventListener("load", () => resolve(String(reader.result)));
    reader.addEventListener("error", () => reject(reader.error));
    reader.readAsDataURL(blob);
  });
}

/**
 * Scales a picture to what models look at.
 * @param {ImageBitmap} bitmap
 */
async function scaled(bitmap) {
  const [largest, ...smaller] = SIDES_PIXELS;
  let picture = await drawn(bitmap, largest);
  for (const side of smaller) {
    if (picture.size <= SCALED_BYTES_MAX) break;
    picture = await drawn(bitmap, side);
  }
  return picture;
}

/**
 * @param {ImageBitmap} bitmap
 * @param {number} side maximum pixels of its longer side
 */
function drawn(bitmap, side) {
  const share = Math.min(1, side / Math.max(bitmap.width, bitmap.height));
  const canvas = new OffscreenCanvas(Math.max(1, bitmap.width * share), Math.max(1, bitmap.height * share));
  const context = canvas.getContext("2d");
  if (!context) throw new Error("there is no canvas");
  // JPEG has no transparency.
  context.fillStyle = "white";
  context.fillRect(0, 0, canvas.width, canvas.height);
  context.drawImage(bitmap, 0, 0, canvas.width, canvas.height);
  return canvas.convertToBlob({ type: "image/jpeg", quality: QUALITY });
}
