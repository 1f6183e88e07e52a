//! Limits of a command's processes that the kernel enforces.

use super::order::Limits;
use rustix::{
    fs::Mode,
    process::{Resource, Rlimit, getuid, nice, setrlimit, umask},
};
use std::fs;

/// Maximum open files of one process.
const FILES_MAX: u64 = 1_024;

/// Address space per byte of memory. Runtimes, above all JavaScript's, reserve far more addresses than they use.
const ADDRESSES_PER_BYTE: u64 = 16;

/// The niceness of commands, so that the server gets the processor first.
const NICENESS: i32 = 10;

/// Sets the limits of this process and of all that it starts.
///
/// # Errors
/// A limit that the system refuses, as text for the log.
pub(super) fn limit(limits: Limits) -> Result<(), String> {
    // They are counted before anything is confined, because the processes of others are invisible afterwards.
    let running = tasks_of(getuid().as_raw());
    let bounds = [
        (Resource::Core, 0),
        (Resource::Msgqueue, 0),
        (Resource::Memlock, 0),
        (Resource::Nofile, FILES_MAX),
        (Resource::Fsize, limits.file_bytes),
        (Resource::Data, limits.memory_bytes),
        (Resource::As, limits.memory_bytes.saturating_mul(ADDRESSES_PER_BYTE)),
        (Resource::Cpu, limits.cpu_secs),
        (Resource::Nproc, running + limits.processes),
    ];
    for (resource, bound) in bounds {
        // A limit that is already lower stays, because raising it is not up to us.
        let allowed = rustix::process::getrlimit(resource).maximum.map_or(bound, |maximum| maximum.min(bound));
        let limit = Rlimit { current: Some(allowed), maximum: Some(allowed) };
        setrlimit(resource, limit).map_err(|error| format!("limit {resource:?} to {allowed}: {error}"))?;
    }
    umask(Mode::RWXG | Mode::RWXO);
    let _ = nice(NICENESS);
    // When memory runs out, the system ends a command before the server.
    let _ = fs::write("/proc/self/oom_score_adj", "1000");
    Ok(())
}

/// Returns the number of processes and threads of a user.
fn tasks_of(user: u32) -> u64 {
    let Ok(processes) = fs::read_dir("/proc") else { return 0 };
    let numbered = processes.flatten().filter(|entry| entry.file_name().as_encoded_bytes()[0].is_ascii_digit());
    let tasks = numbered.filter_map(|entry| {
        let status = fs::read_to_string(entry.path().join("status")).ok()?;
        let field = |name: &str| {
            let line = status.lines().find_map(|line| line.strip_prefix(name))?;
            line.split_whitespace().next()?.parse::<u64>().ok()
        };
        (field("Uid:")? == u64::from(user)).then(|| field("Threads:"))?
    });
    tasks.sum()
}

#[cfg(test)]
mod tests {
    use super::tasks_of;
    use rustix::process::getuid;

    #[test]
    fn the_tasks_of_a_user_include_threads() {
        let (user, before) = (getuid().as_raw(), tasks_of(getuid().as_raw()));
        assert!(before >= 2, "{before}: the test has a thread of its own");
        assert_eq!(tasks_of(u32::MAX - 7), 0, "nobody is user {user} and that one");
    }
}
