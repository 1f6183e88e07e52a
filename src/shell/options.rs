//! The flags of `reseed-shell`.

use clap::{Parser, value_parser};
use std::path::PathBuf;

/// An MCP server with the tools `shell` and `apply_patch`, which work in a folder of the session.
///
/// It speaks MCP over its standard input and output, so an MCP client starts it.
#[derive(Debug, Parser)]
#[command(name = "reseed-shell", version)]
pub(crate) struct Options {
    /// The directory with a folder for each session, created when it is needed.
    #[arg(long, default_value = "./data/workspaces")]
    pub(crate) folder: PathBuf,
    /// Give commands all rights of this program's user, the network included. Without this flag they are confined to
    /// the session's folder, which needs Linux 6.12.
    #[arg(long)]
    pub(crate) no_sandbox: bool,
    /// The user and group, by number, that commands run as, such as 10002:10002. Only root can set it, and must unless
    /// there is no sandbox.
    #[arg(long, value_name = "USER:GROUP", value_parser = user_and_group)]
    pub(crate) user: Option<UserAndGroup>,
    /// Let a client that names no sessions work too. All of its calls share the folder `.shared`.
    #[arg(long)]
    pub(crate) shared: bool,
    /// The time limit of a command; the model can ask for less.
    #[arg(long, default_value_t = 60, value_parser = value_parser!(u64).range(1..=3_600))]
    pub(crate) timeout_secs: u64,
    /// The most memory of one process of a command.
    #[arg(long, default_value_t = 4 << 30, value_parser = value_parser!(u64).range(64 << 20..=1 << 50))]
    pub(crate) memory_bytes_max: u64,
    /// The largest file that a command may write.
    #[arg(long, default_value_t = 256 << 20, value_parser = value_parser!(u64).range(1 << 20..=1 << 50))]
    pub(crate) file_bytes_max: u64,
    /// The most processes and threads that a command may add to those of its user. Does not hold for root.
    #[arg(long, default_value_t = 256, value_parser = value_parser!(u64).range(8..=100_000))]
    pub(crate) processes_max: u64,
    /// The most commands at a time; further ones wait.
    #[arg(long, default_value_t = 8, value_parser = value_parser!(u32).range(1..=1_000))]
    pub(crate) calls_max: u32,
}

/// A user and a group of the system, by number. Neither is root.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct UserAndGroup {
    /// The user.
    pub(crate) user: u32,
    /// The group.
    pub(crate) group: u32,
}

/// Parses a user and a group. The highest number is refused, because it means none to the system.
fn user_and_group(text: &str) -> Result<UserAndGroup, String> {
    let number = |text: &str| text.parse().ok().filter(|number| (1..u32::MAX).contains(number));
    let numbers = text.split_once(':').and_then(|(user, group)| Some((number(user)?, number(group)?)));
    let (user, group) = numbers.ok_or("allowed: USER:GROUP, both whole numbers above 0, such as 10002:10002")?;
    Ok(UserAndGroup { user, group })
}

#[cfg(test)]
mod tests {
    use super::{Options, UserAndGroup, user_and_group};
    use clap::{CommandFactory as _, Parser as _};

    #[test]
    fn every_flag_has_a_default_that_is_allowed() {
        Options::command().debug_assert();
        let options = Options::parse_from(["reseed-shell"]);
        assert!(!options.no_sandbox);
        assert_eq!((options.memory_bytes_max, options.file_bytes_max), (4_294_967_296, 268_435_456));
    }

    #[test]
    fn a_user_is_two_numbers_and_never_root() {
        assert_eq!(user_and_group("1:2"), Ok(UserAndGroup { user: 1, group: 2 }));
        for text in ["", "1", "0:1", "1:0", "ada:users", "4294967295:1", "1:2:3", "-1:2"] {
            assert!(user_and_group(text).is_err(), "{text}");
        }
    }
}
