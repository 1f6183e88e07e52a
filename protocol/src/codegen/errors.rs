//! The page of error codes and close codes.

use super::NOTICE;
use crate::{CloseCode, ErrorCode};
use std::fmt::Write as _;

/// ERRORS.md.
pub(super) fn page() -> String {
    let mut page = format!(
        "<!-- {NOTICE} -->\n\n# Error codes\n\n\
         `error {{ code, message, retriable, retryAfterMs?, details? }}` answers a command that was refused; nothing was changed.\n\
         The same object stands in `turn_finished.error`. `retriable` means: the same command, sent again unchanged, may succeed.\n\
         A client treats a code it does not know by `retriable`.\n\n\
         | code | retriable | cause | remedy |\n| --- | --- | --- | --- |\n"
    );
    for code in ErrorCode::ALL {
        let retriable = if code.is_retriable() { "yes" } else { "no" };
        let _ = writeln!(page, "| `{code}` | {retriable} | {} | {} |", code.cause(), code.remedy());
    }
    page.push_str(
        "\n# Close codes\n\nBad frames are answered, not punished: the server closes only where this table says so.\n\
         A number that is not in the table: 44xx do not blindly reconnect, 45xx and 1011 to 1014 reconnect and resume.\n\n\
         | code | cause | what the client should do |\n| --- | --- | --- |\n",
    );
    for code in CloseCode::ALL {
        let (cause, action) = explain(*code);
        let _ = writeln!(page, "| {} | {cause} | {action} |", code.code());
    }
    page
}

const RESUME: &str = "Reconnect, with growing pauses, and resume.";

fn explain(code: CloseCode) -> (&'static str, &'static str) {
    match code {
        CloseCode::Normal => ("Done; either side is leaving.", "Nothing."),
        CloseCode::Protocol => ("The client broke RFC 6455.", "Mend the client."),
        CloseCode::InvalidUtf8 => ("A text frame was not UTF-8.", "Mend the client."),
        CloseCode::TooLarge => {
            ("A message was larger than `welcome.limits.messageBytesMax`.", "Reconnect, resume, and send less.")
        }
        CloseCode::Internal => ("A fault of ours.", RESUME),
        CloseCode::Restarting => ("The server restarts.", RESUME),
        CloseCode::Overloaded => {
            ("The server has as many connections as it may.", "Reconnect later, with growing pauses.")
        }
        CloseCode::BadFrames => ("Too many bad frames in a row.", "Mend the client; each was answered with its fault."),
        CloseCode::Credentials => {
            ("The credentials are missing, wrong or used up.", "Get a new ticket or token, then reconnect and resume.")
        }
        CloseCode::Forbidden => ("These credentials or this origin are not allowed.", "Use others."),
        CloseCode::NoSuchSession => ("The session was deleted.", "Open another session."),
        CloseCode::NoHello => ("No `hello` came in time.", "Reconnect and send `hello` first."),
        CloseCode::TakenOver => (
            "Another owner took the session over.",
            "Tell the user; reconnect only when asked, as observer or with `takeover`.",
        ),
        CloseCode::RateLimit => {
            ("Far more commands a minute than allowed.", "Wait a minute, then reconnect and resume.")
        }
        CloseCode::SlowReader => ("This client read too slowly.", RESUME),
        CloseCode::NoPong => ("No pong came back.", RESUME),
    }
}
