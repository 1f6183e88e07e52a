//! The process between the server and a command: it gives up its own rights, then starts the command and waits.
//!
//! It is the server's own binary with another argument, so nothing but `exec` happens between `fork` and the command,
//! and none of our code is unsafe. The command inherits the reduced rights.
//!
//! - Standard input carries the order. It stays open as long as the call is wanted. When it ends, everything is killed,
//!   so a command does not outlive a server that crashed.
//! - Standard output is the command's: its output and its errors, in the order in which they were written.
//! - Standard error carries the report, one line. The command does not have it.

use super::{
    landlock, limits,
    order::{Command, ORDER_BYTES_MAX, Order, Report},
    syscalls,
};
use rustix::{
    event::{PollFd, PollFlags, poll},
    io::Errno,
    process::{
        DumpableBehavior, Pid, PidfdFlags, Signal, WaitOptions, geteuid, getpid, kill_process, kill_process_group,
        pidfd_open, set_child_subreaper, set_dumpable_behavior, waitpid,
    },
};
use std::{
    fs,
    io::{self, BufRead as _, Read as _, Write as _},
    os::{fd::AsFd as _, unix::process::ExitStatusExt as _},
    path::{Path, PathBuf},
    process::{Child, ExitCode, ExitStatus, Stdio},
    thread,
    time::{Duration, Instant},
};

/// The directories in which programs are searched.
const PATH: &str = "/usr/local/bin:/usr/bin:/bin:/usr/local/sbin:/usr/sbin:/sbin";

/// The exit code with which shells report that a program could not be run.
const NO_PROGRAM: i32 = 127;

/// Time limit for ending processes that left the group of an unconfined command. They could start new ones
/// indefinitely.
const SWEEP_TIME: Duration = Duration::from_secs(1);

/// Runs the helper. It reads its order from standard input and is not for people.
pub(crate) fn run() -> ExitCode {
    let report = match carry_out() {
        Ok(report) | Err(report) => report,
    };
    tell(&report);
    // This process is in the group too, and ends here in any case.
    let _ = kill_group();
    ExitCode::SUCCESS
}

fn carry_out() -> Result<Report, Report> {
    let not_confined = Report::NotConfined;
    let order = read_order().map_err(not_confined)?;
    close_inherited().map_err(not_confined)?;
    limits::limit(order.limits).map_err(not_confined)?;
    if order.is_confined {
        if geteuid().is_root() {
            return Err(not_confined(
                "the sandbox does not hold for root, to whom the system's files belong; give --user, or run as another \
                 user"
                    .to_owned(),
            ));
        }
        fs::read_dir(&order.folder)
            .map_err(|error| not_confined(format!("cannot reach {}: {error}", order.folder.display())))?;
        landlock::confine(&order.folder).map_err(not_confined)?;
        syscalls::forbid().map_err(not_confined)?;
    } else {
        // A process that leaves the group becomes a child of this process when its parent ends, so it can be found.
        set_child_subreaper(Some(getpid())).map_err(|error| not_confined(format!("become a subreaper: {error}")))?;
    }
    match &order.command {
        None => Ok(Report::Ready),
        Some(command) => start(&order, command).map_err(Report::NotStarted),
    }
}

fn read_order() -> Result<Order, String> {
    let mut line = String::new();
    // The reader may buffer beyond the line. Nothing follows the order but the end, for which `wait_for` polls.
    io::stdin()
        .lock()
        .take(ORDER_BYTES_MAX)
        .read_line(&mut line)
        .map_err(|error| format!("read the order: {error}"))?;
    serde_json::from_str(&line).map_err(|error| format!("the order cannot be read: {error}"))
}

/// Closes what this process inherited beyond its three streams. The server opens nothing that programs inherit, but the
/// program that started the server may have, and Landlock does not restrict open descriptors.
fn close_inherited() -> Result<(), String> {
    let fault = |error: io::Error| format!("list the open files: {error}");
    let numbers: Vec<i32> = fs::read_dir("/proc/self/fd")
        .map_err(fault)?
        .map(|entry| Ok(entry.map_err(fault)?.file_name().to_string_lossy().parse().unwrap_or(0)))
        .collect::<Result<_, String>>()?;
    // The listing itself used a descriptor that is closed by now, so an error is expected.
    numbers.into_iter().filter(|number| *number > 2).for_each(|number| {
        let _ = nix::unistd::close(number);
    });
    Ok(())
}

/// Starts the command and waits until it ends.
fn start(order: &Order, command: &Command) -> Result<Report, String> {
    // The command runs in the same confinement, so it could otherwise open this process's files, such as the report.
    let _ = set_dumpable_behavior(DumpableBehavior::NotDumpable);
    let temporary = order.folder.join(".tmp");
    // This happens within the confinement, so a link that a command has put there leads nowhere.
    let _ = fs::create_dir(&temporary);
    let directory = directory(&order.folder, command.workdir.as_deref())?;
    let (program, arguments) = command.argv.split_first().ok_or("the command is empty")?;
    let output = io::stdout().as_fd().try_clone_to_owned().map_err(|error| format!("open the output: {error}"))?;
    let started = std::process::Command::new(program)
        .args(arguments)
        .env_clear()
        .envs([("PATH", PATH), ("LANG", "C.UTF-8"), ("TERM", "dumb")])
        .env("HOME", &order.folder)
        .env("PWD", &directory)
        .env("TMPDIR", &temporary)
        .current_dir(&directory)
        .stdin(Stdio::null())
        .stdout(Stdio::inherit())
        .stderr(Stdio::from(output))
        .spawn();
    let mut child = match started {
        Ok(child) => child,
        Err(error) => {
            let _ = writeln!(io::stdout(), "cannot run `{}`: {error}", program.escape_debug());
            return Ok(Report::Ended(NO_PROGRAM));
        }
    };
    if !wait_for(&child) {
        if !order.is_confined {
            sweep();
        }
        // This kills this process too.
        let _ = kill_group();
    }
    let status = child.wait().map_err(|error| format!("wait for the command: {error}"))?;
    if !order.is_confined {
        sweep();
    }
    Ok(Report::Ended(code_of(status)))
}

/// Waits until the command has ended. Returns false if the call is no longer wanted. It uses no thread, because a
/// command that uses up the user's processes might leave no room for one.
fn wait_for(child: &Child) -> bool {
    let Some(number) = Pid::from_raw(child.id().cast_signed()) else { return true };
    // Without a descriptor of the process, the command is only waited for. The server kills what takes too long.
    let Ok(ended) = pidfd_open(number, PidfdFlags::empty()) else { return true };
    let input = io::stdin();
    loop {
        // Nothing is written after the order, so readable input means its end.
        let mut events = [PollFd::new(&ended, PollFlags::IN), PollFd::new(&input, PollFlags::IN)];
        match poll(&mut events, None) {
            Err(Errno::INTR) => {}
            Err(_) => return true,
            Ok(_) => return !events[0].revents().is_empty(),
        }
    }
}

/// Returns the directory to start in, which must be in the folder.
fn directory(folder: &Path, workdir: Option<&str>) -> Result<PathBuf, String> {
    let Some(workdir) = workdir else { return Ok(folder.to_owned()) };
    let shown = || format!("`{}`", workdir.escape_debug());
    let directory = folder.join(workdir).canonicalize().map_err(|error| format!("workdir is {}: {error}", shown()))?;
    if directory.starts_with(folder) {
        Ok(directory)
    } else {
        Err(format!("workdir is {}, which is outside of the session's folder; use a path relative to it", shown()))
    }
}

/// Returns the exit code in the form that shells use.
fn code_of(status: ExitStatus) -> i32 {
    status.code().unwrap_or_else(|| 128 + status.signal().unwrap_or_default())
}

fn tell(report: &Report) {
    if let Ok(line) = serde_json::to_string(report) {
        let _ = writeln!(io::stderr(), "{line}");
    }
}

/// Kills the group by its number, because the filters forbid the form without one.
fn kill_group() -> rustix::io::Result<()> {
    match rustix::process::getpgrp() {
        // The helper was started by hand and not by the server, so the group is the terminal's.
        group if group != getpid() => Ok(()),
        group => kill_process_group(group, Signal::KILL),
    }
}

/// Kills all descendants of an unconfined command, including those that left the group. Processes whose parents end
/// become children of this process, so the loop finds all of them in the end.
fn sweep() {
    let start = Instant::now();
    while start.elapsed() < SWEEP_TIME {
        let children = children();
        if children.is_empty() {
            return;
        }
        for child in children {
            let _ = kill_process(child, Signal::KILL);
            let _ = waitpid(Some(child), WaitOptions::NOHANG);
        }
        // Those that were just killed end in a moment.
        thread::sleep(Duration::from_millis(1));
    }
}

/// Returns the children of this process.
fn children() -> Vec<Pid> {
    let own = getpid().as_raw_nonzero().get().to_string();
    let Ok(processes) = fs::read_dir("/proc") else { return Vec::new() };
    let pids = processes.flatten().filter_map(|entry| {
        let pid: i32 = entry.file_name().to_str()?.parse().ok()?;
        let stat = fs::read_to_string(entry.path().join("stat")).ok()?;
        // The name before it, in brackets, may contain any characters.
        let parent = stat.rsplit_once(')')?.1.split_whitespace().nth(1)?;
        if parent == own { Pid::from_raw(pid) } else { None }
    });
    pids.collect()
}
