//! Generates the page of error codes and close codes.

use super::NOTICE;
use reseed_protocol::{CloseCode, ErrorCode};
use std::fmt::Write as _;

/// Returns the text of ERRORS.md.
pub(crate) fn page() -> String {
    let mut page = format!(
        "<!-- {NOTICE} -->\n\n# Error codes\n\n\
         `error {{ code, message, retriable, retryAfterMs?, details? }}` is the reply to a refused command; nothing was changed,\n\
         unless its cause below says that the command may be stored. The same object is in `turn_finished.error`. `retriable`\n\
         means that the same command, sent again unchanged, may succeed. A client handles an unknown code by its `retriable`.\n\n\
         | code | retriable | cause | remedy |\n| --- | --- | --- | --- |\n"
    );
    for code in ErrorCode::ALL {
        let retriable = if code.is_retriable() { "yes" } else { "no" };
        let _ = writeln!(page, "| `{code}` | {retriable} | {} | {} |", code.cause(), code.remedy());
    }
    page.push_str(
        "\n# Close codes\n\nBad frames are answered: the server closes the connection only in the cases in this table.\n\
         For other codes: 44xx do not reconnect automatically, 45xx and 1011 to 1014 reconnect and resume.\n\n\
         | code | cause | what the client should do |\n| --- | --- | --- |\n",
    );
    for code in CloseCode::ALL {
        let (cause, action) = explain(*code);
        let _ = writeln!(page, "| {} | {cause} | {action} |", code.code());
    }
    page
}

const RESUME: &str = "Reconnect with increasing delays, and resume.";

fn explain(code: CloseCode) -> (&'static str, &'static str) {
    match code {
        CloseCode::Normal => ("Normal closure by either side.", "No action is needed."),
        CloseCode::Protocol => ("The client violated RFC 6455.", "Fix the client."),
        CloseCode::InvalidUtf8 => ("A text frame was not UTF-8.", "Fix the client."),
        CloseCode::TooLarge => {
            ("A message was larger than `welcome.limits.messageBytesMax`.", "Reconnect, resume, and send less.")
        }
        CloseCode::Internal => ("An internal error.", RESUME),
        CloseCode::Restarting => ("The server is restarting.", RESUME),
        CloseCode::Overloaded => {
            ("The server's limit of connections is reached.", "Reconnect later, with increasing delays.")
        }
        CloseCode::BadFrames => {
            ("Too many bad frames in a row.", "Fix the client; each frame was answered with its error.")
        }
        CloseCode::Credentials => {
            ("The credentials are missing, wrong or expired.", "Get a new ticket or token, then reconnect and resume.")
        }
        CloseCode::Revoked => (
            "The grant was revoked by the service that made it.",
            "Do not reconnect with it; ask the application again.",
        ),
        CloseCode::NoSuchSession => {
            ("v1: the session was deleted. In v2 `session_closed` says so.", "Open another session.")
        }
        CloseCode::NoHello => ("No `hello` arrived in time.", "Reconnect and send `hello` first."),
        CloseCode::RateLimit => {
            ("The client far exceeded its rate limit.", "Wait a minute, then reconnect and resume.")
        }
        CloseCode::SlowReader => {
            ("This client read too slowly, or the server lost changes of the list that it watches.", RESUME)
        }
        CloseCode::NoPong => ("No pong was received.", RESUME),
    }
}
