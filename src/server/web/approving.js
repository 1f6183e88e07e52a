/**
 * Answers approvals in the displayed session and describes answers given elsewhere.
 *
 * @typedef {import("reseed-protocol").Approval} Approval
 * @typedef {import("reseed-protocol").CallResolved} Resolved
 */

import { CommandError } from "./client.js";
import { explainError } from "./errors.js";
import { CLIENT_NAME } from "./presence.js";

/** Error codes for an answer that came after another one: the card is about to disappear. */
const OVER = ["too_late", "no_pending_approval"];

export class Approving {
  /** @param {import("./app.js").App} app */
  constructor(app) {
    this.app = app;
    /** @type {Set<string>} approvals answered by this page that are not yet resolved */
    this.mine = new Set();
    /** @type {Map<string, string>} tool names of the approvals seen, by `approvalId` */
    this.names = new Map();
  }

  /**
   * Sends an answer.
   * @param {Approval} approval
   * @param {import("reseed-protocol").ApprovalOption} option
   * @param {string} message for the model, when rejecting
   * @returns {Promise<string | null>} null on success; otherwise what went wrong, in plain language
   */
  async answer(approval, option, message) {
    const { approvalId } = approval;
    this.names.set(approvalId, approval.name);
    this.mine.add(approvalId);
    try {
      await this.app.theSession.approve(approval, option, message || undefined);
      return null;
    } catch (error) {
      this.mine.delete(approvalId);
      if (error instanceof CommandError && OVER.includes(error.code)) return "";
      return explainError(error).text;
    }
  }

  /**
   * Describes a decision that has just arrived, or returns null if this page made it.
   * @param {Resolved} resolved
   */
  told({ approvalId, option, outcome, by }) {
    const name = this.names.get(approvalId ?? "") ?? "";
    this.names.delete(approvalId ?? "");
    if (approvalId === undefined || this.mine.delete(approvalId)) return null;
    const tool = name ? `the tool ${name}` : "a tool";
    if (outcome === "expired") return `Nobody answered in time: ${tool} was not run.`;
    if (option === undefined) return null;
    const did = { allow_once: "allowed", allow_always: "always allowed", reject_once: "rejected", reject_always: "always rejected" }[option];
    return `${tool.replace(/^./, (letter) => letter.toUpperCase())} was ${did} ${this.where(by)}.`;
  }

  /** @param {string | undefined} by id of the client that answered */
  where(by) {
    const client = this.app.snapshot?.presence.find((one) => by !== undefined && one.clientId === by)?.client;
    if (client === undefined) return "elsewhere";
    return client.name === CLIENT_NAME ? "in another window" : `in ${client.name}`;
  }

  /**
   * Withdraws a standing approval: the next such call is asked about again.
   * @param {string} approvalId
   */
  async withdraw(approvalId) {
    await this.app.quietly(this.app.theSession.withdrawApproval(approvalId));
  }
}
