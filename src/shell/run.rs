//! Runs one command: starts the helper, reads the output, and ends every process of the command.

use super::{
    folders::own,
    kept::Kept,
    order::{Order, REPORT_BYTES_MAX, Report},
};
use crate::options::UserAndGroup;
use rustix::process::{Pid, Signal, kill_process_group};
use std::{io, process::Stdio, time::Duration};
use tokio::{
    io::{AsyncBufReadExt as _, AsyncRead, AsyncReadExt as _, AsyncWriteExt as _, BufReader},
    process::{Child, ChildStdin, Command},
    runtime::Handle,
    sync::OwnedSemaphorePermit,
    time::{Instant, sleep_until, timeout},
};

/// Maximum output of a command, kept or not. A command that writes more is ended.
pub(super) const OUTPUT_BYTES_MAX: u64 = 64 * 1024 * 1024;

/// How long killed processes may take to end. The kernel may still be writing to a disk for them.
pub(super) const ENDING_TIME: Duration = Duration::from_secs(2);

/// The first argument of the helper.
pub(super) const HELPER: &str = "sandboxed-exec";

/// The binary of this process, even after its file was replaced.
const BINARY: &str = "/proc/self/exe";

/// How helpers are started.
#[derive(Debug, Clone, Copy)]
pub(super) struct Launch {
    /// The user that commands run as; `None` for the server's.
    pub(super) user: Option<UserAndGroup>,
    /// True if commands are confined, so that no process can leave its group.
    pub(super) is_confined: bool,
}

/// How a command ended.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    /// The helper reported it.
    Reported(Report),
    /// Its time limit has passed.
    TimedOut,
    /// It wrote more than [`OUTPUT_BYTES_MAX`].
    WroteTooMuch,
    /// The helper ended without a report.
    Lost,
}

/// Runs a command to its end. Dropping the future kills the command. Its permit is returned once its processes are
/// gone.
///
/// # Errors
/// The helper cannot be started.
pub(super) async fn run(
    launch: Launch,
    order: &Order,
    time: Duration,
    kept: &mut Kept,
    place: OwnedSemaphorePermit,
) -> io::Result<Outcome> {
    let deadline = Instant::now() + time;
    let (mut group, streams) = Group::start(launch, place)?;
    let Streams { control, mut output, report } = streams;
    if let Some(user) = launch.user {
        // Both ends are one file, which programs open again as `/dev/stdout`.
        let _ = own(&output, user);
    }
    // This holds `control`, so dropping it tells the helper to end.
    let mut reported = Box::pin(exchange(control, report, order));
    let mut buffer = vec![0; 16 * 1024];
    let mut is_open = true;
    let outcome = loop {
        tokio::select! {
            read = output.read(&mut buffer), if is_open => match read {
                Ok(count) if count > 0 => {
                    kept.push(&buffer[..count]);
                    if kept.total() > OUTPUT_BYTES_MAX {
                        break Outcome::WroteTooMuch;
                    }
                }
                _ => is_open = false,
            },
            reported = &mut reported => break reported.map_or(Outcome::Lost, |(report, _)| Outcome::Reported(report)),
            () = sleep_until(deadline) => break Outcome::TimedOut,
        }
    };
    // Output that was written before the end is read after it, and nobody writes any more.
    group.kill();
    drop(reported);
    let rest = async {
        while let Ok(count) = output.read(&mut buffer).await
            && count > 0
            && kept.total() <= OUTPUT_BYTES_MAX
        {
            kept.push(&buffer[..count]);
        }
    };
    // An unconfined process may have left the group and keep the output open.
    let _ = timeout(ENDING_TIME, rest).await;
    group.end().await;
    Ok(outcome)
}

/// Sends the order and waits for the report.
async fn exchange(
    mut control: ChildStdin,
    report: impl AsyncRead + Unpin,
    order: &Order,
) -> Option<(Report, ChildStdin)> {
    let mut line = serde_json::to_vec(order).ok()?;
    line.push(b'\n');
    control.write_all(&line).await.ok()?;
    control.flush().await.ok()?;
    let mut line = String::new();
    BufReader::new(report.take(REPORT_BYTES_MAX)).read_line(&mut line).await.ok()?;
    Some((serde_json::from_str(&line).ok()?, control))
}

/// The three streams of a helper.
struct Streams {
    control: ChildStdin,
    output: tokio::process::ChildStdout,
    report: tokio::process::ChildStderr,
}

/// The process group of a helper and its command.
///
/// Invariant: the helper, which leads the group, is reaped after the last kill, so that no other group can have its
/// number.
struct Group {
    /// `None` once it was reaped.
    helper: Option<Child>,
    number: Pid,
    /// True if no process can leave the group.
    is_confined: bool,
    /// The permit for a command; taken together with the helper.
    place: Option<OwnedSemaphorePermit>,
}

impl Group {
    fn start(launch: Launch, place: OwnedSemaphorePermit) -> io::Result<(Self, Streams)> {
        let mut command = Command::new(BINARY);
        command.arg0("reseed-shell").arg(HELPER).env_clear().current_dir("/").process_group(0);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        if let Some(user) = launch.user {
            command.uid(user.user).gid(user.group);
        }
        let mut helper = command.spawn()?;
        let gone = || io::Error::other("the helper has no number or streams");
        let number = helper.id().and_then(|id| Pid::from_raw(id.cast_signed())).ok_or_else(gone)?;
        let streams = (helper.stdin.take(), helper.stdout.take(), helper.stderr.take());
        let group = Self { helper: Some(helper), number, is_confined: launch.is_confined, place: Some(place) };
        let (Some(control), Some(output), Some(report)) = streams else { return Err(gone()) };
        Ok((group, Streams { control, output, report }))
    }

    /// Kills the group at once if no process can have left it. Otherwise the helper does it, which finds those that
    /// left.
    fn kill(&self) {
        if self.is_confined {
            self.kill_group();
        }
    }

    fn kill_group(&self) {
        let _ = kill_process_group(self.number, Signal::KILL);
    }

    /// Waits for the helper, whose streams are closed.
    async fn end(&mut self) {
        if let Some(helper) = &mut self.helper {
            reap(helper, self.number).await;
            self.helper = None;
        }
    }
}

/// Waits for a helper. If it does not end in time, kills it and the rest of its group.
async fn reap(helper: &mut Child, number: Pid) {
    if timeout(ENDING_TIME, helper.wait()).await.is_err() {
        let _ = kill_process_group(number, Signal::KILL);
        let _ = timeout(ENDING_TIME, helper.wait()).await;
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        let Some(mut helper) = self.helper.take() else { return };
        self.kill();
        let (number, last, place) = (self.number, LastResort(Some(self.number)), self.place.take());
        if let Ok(runtime) = Handle::try_current() {
            // The helper sees the end of its orders, ends its command, and is reaped here.
            runtime.spawn(async move {
                let mut last = last;
                reap(&mut helper, number).await;
                last.0 = None;
                drop(place);
            });
        }
    }
}

/// Kills a group if nobody can wait for it, because the runtime is ending or there is none.
struct LastResort(Option<Pid>);

impl Drop for LastResort {
    fn drop(&mut self) {
        if let Some(number) = self.0 {
            let _ = kill_process_group(number, Signal::KILL);
        }
    }
}
