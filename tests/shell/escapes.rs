//! Attempts to leave the session's folder by files, sockets and other processes. Each act is done three times: inside,
//! where it works; outside, where it must not; and outside without the sandbox, where it works again. So an act that
//! fails for another reason fails the test.

use super::{SESSION, World};
use serde_json::json;
use std::{
    fs,
    net::{TcpListener, UdpSocket},
    os::{
        linux::net::SocketAddrExt as _,
        unix::{
            fs::{MetadataExt as _, PermissionsExt as _},
            net::{SocketAddr, UnixListener},
            process::CommandExt as _,
        },
    },
    path::Path,
    process::{Child, Command, Stdio},
};

const SECRET: &str = "secret-3f9d71";

/// The sign that an act succeeded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Sign {
    /// The output has [`SECRET`].
    Reads,
    /// The target is not as it was.
    Alters,
}
use Sign::{Alters, Reads};

/// Acts on files: `$1` is the target directory, `$2` a path to it from the session's folder. It has `file` with the
/// secret, `program` that prints it, `secret-3f9d71` to be listed, and the empty directory `empty`.
const ACTS: &[(&str, Sign, &str)] = &[
    ("read", Reads, r#"cat "$1/file""#),
    ("read by a relative path", Reads, r#"cat "$2/file""#),
    ("read by standard input", Reads, r#"cat < "$1/file""#),
    ("read through a link", Reads, r#"ln -s "$1/file" l1 && cat l1"#),
    ("read through a link with ..", Reads, r#"mkdir -p a/b && ln -s "../../$2/file" a/b/l2 && cat a/b/l2"#),
    ("read through a linked directory", Reads, r#"ln -s "$1" l3 && cat l3/file"#),
    ("read through a chain of links", Reads, r#"ln -s "$1" l4 && ln -s l4/file l5 && cat l5"#),
    ("read after changing there", Reads, r#"cd "$1" && cat file"#),
    ("read through a hard link", Reads, r#"ln "$1/file" h1 && cat h1"#),
    ("read after moving here", Reads, r#"mv "$1/file" moved && cat moved"#),
    ("read after exchanging directories", Reads, r#"mv "$1" moved2 && cat moved2/file"#),
    ("read a copy", Reads, r#"cp -r "$1" copy && cat copy/file"#),
    ("read through /proc/self/root", Reads, r#"cat "/proc/self/root$1/file""#),
    ("read through /proc/self/cwd", Reads, r#"cat "/proc/self/cwd/$2/file""#),
    ("read through an open directory", Reads, r#"exec 7< "$1" && cat /proc/self/fd/7/file"#),
    ("list", Reads, r#"ls "$1""#),
    ("run", Reads, r#""$1/program""#),
    ("run by an interpreter", Reads, r#"sh "$1/program""#),
    ("source", Reads, r#". "$1/program""#),
    (
        "read in a race with a link",
        Reads,
        r#"mkdir -p race/d; echo no > race/d/file; ln -s "$1" race/l
        (while :; do mv -T race/d race/x; mv -T race/l race/d; mv -T race/d race/l; mv -T race/x race/d; done) 2>&- &
        for i in $(seq 400); do cat race/d/file race/l/file; done"#,
    ),
    ("create", Alters, r#"echo new > "$1/new""#),
    ("append", Alters, r#"echo more >> "$1/file""#),
    ("overwrite", Alters, r#"echo other > "$1/file""#),
    ("write by a relative path", Alters, r#"echo other > "$2/file""#),
    ("write through a link", Alters, r#"ln -s "$1/file" w1 && echo other > w1"#),
    ("write through a link that dangles", Alters, r#"ln -s "$1/new" w2 && echo other > w2"#),
    ("write through a linked directory", Alters, r#"ln -s "$1" w3 && echo other > w3/new"#),
    ("write through /proc/self/root", Alters, r#"echo other > "/proc/self/root$1/file""#),
    ("write in place", Alters, r#"printf x | dd of="$1/file" conv=notrunc"#),
    ("truncate", Alters, r#"truncate -s 0 "$1/file""#),
    (
        "truncate what is open for reading",
        Alters,
        r#"perl -e 'use Fcntl; sysopen F, "$ARGV[0]/file", O_RDONLY|O_TRUNC' "$1""#,
    ),
    ("truncate by path", Alters, r#"perl -e 'truncate "$ARGV[0]/file", 0' "$1""#),
    ("remove", Alters, r#"rm -f "$1/file""#),
    ("remove a directory", Alters, r#"rmdir "$1/empty""#),
    ("rename there", Alters, r#"mv "$1/file" "$1/renamed""#),
    ("move there", Alters, r#"echo own > own1 && mv own1 "$1/own""#),
    ("copy there", Alters, r#"echo own > own2 && cp own2 "$1/own""#),
    ("make a directory", Alters, r#"mkdir "$1/made""#),
    ("make a link there", Alters, r#"ln -s /etc "$1/link""#),
    ("make a hard link there", Alters, r#"echo own > own3 && ln own3 "$1/hard""#),
    ("make a pipe", Alters, r#"mkfifo "$1/pipe""#),
    ("edit", Alters, r#"sed -i s/secret/open/ "$1/file""#),
    ("set the times", Alters, r#"touch -d 2001-01-01 "$1/file""#),
    (
        "write in a race with a link",
        Alters,
        r#"mkdir -p wrace/d; ln -s "$1" wrace/l
        (while :; do mv -T wrace/d wrace/x; mv -T wrace/l wrace/d; mv -T wrace/d wrace/l; mv -T wrace/x wrace/d; done) 2>&- &
        for i in $(seq 400); do echo $i > wrace/d/file; echo $i > wrace/l/file; done; test -e "$1/file""#,
    ),
];

/// Acts that the sandbox has no use for, so that they fail inside too.
const ACTS_NOWHERE: &[(&str, Sign, &str)] = &[
    ("set the mode", Alters, r#"chmod 4777 "$1/file""#),
    ("set the mode of a directory", Alters, r#"chmod 000 "$1""#),
    ("set the mode through a link", Alters, r#"ln -s "$1/file" c1 && chmod 000 c1"#),
    (
        "bind a socket",
        Alters,
        r#"perl -e 'use Socket; socket S, PF_UNIX, SOCK_STREAM, 0; bind S, sockaddr_un("$ARGV[0]/s")' "$1""#,
    ),
];

/// Creates the target of acts.
fn target(world: &World, path: &Path) {
    fs::create_dir_all(path.join("empty")).unwrap();
    fs::write(path.join("file"), SECRET).unwrap();
    fs::write(path.join(SECRET), "").unwrap();
    fs::write(path.join("program"), format!("#!/bin/sh\necho {SECRET}\n")).unwrap();
    fs::set_permissions(path.join("program"), fs::Permissions::from_mode(0o755)).unwrap();
    for name in ["", "empty", "file", SECRET, "program"] {
        world.give(&path.join(name));
    }
}

/// Returns everything that can be said of a target.
fn state(path: &Path) -> Vec<String> {
    let mut names: Vec<_> = match fs::read_dir(path) {
        Ok(entries) => entries.map(|entry| entry.unwrap().path()).collect(),
        Err(error) => return vec![error.to_string()],
    };
    names.push(path.to_owned());
    names.sort();
    names
        .iter()
        .map(|name| {
            let about = fs::symlink_metadata(name).unwrap();
            let text = about.is_file().then(|| fs::read(name).map_err(|error| error.kind()));
            // The times of a directory also tell of what came and went.
            format!("{name:?} {:o} {} {}.{} {text:?}", about.mode(), about.nlink(), about.mtime(), about.mtime_nsec())
        })
        .collect()
}

/// Runs one act and returns true if it succeeded.
async fn act(world: &World, target: &Path, relative: &str, sign: Sign, script: &str) -> (bool, String) {
    self::target(world, target);
    let before = state(target);
    let returned = world.script(script, &[target.to_str().unwrap(), relative]).await;
    let succeeded = match sign {
        Reads => returned.output.contains(SECRET),
        Alters => state(target) != before,
    };
    // So that a later act finds nothing of this one.
    let _ = fs::set_permissions(target, fs::Permissions::from_mode(0o755));
    let _ = fs::remove_dir_all(target);
    (succeeded, format!("{returned:?}"))
}

#[tokio::test]
async fn no_act_on_files_reaches_beyond_the_folder() {
    let (confined, free) = (World::new(&[]).await, World::new(&["--no-sandbox"]).await);
    // So that the sessions' folders exist.
    for world in [&confined, &free] {
        world.script("true", &[]).await;
        let outside = world.directory.path().join("outside");
        fs::create_dir(&outside).unwrap();
        // Anyone may write there, as far as the system's permissions go.
        fs::set_permissions(&outside, fs::Permissions::from_mode(0o777)).unwrap();
    }
    let of_outside = |world: &World| world.directory.path().canonicalize().unwrap().join("outside/target");
    let mut faults = Vec::new();
    let acts = ACTS.iter().map(|act| (act, true)).chain(ACTS_NOWHERE.iter().map(|act| (act, false)));
    for ((name, sign, script), works_inside) in acts {
        let inside = confined.folder(SESSION).join("target");
        let cases = [
            ("inside", &confined, inside, "target", works_inside),
            ("outside", &confined, of_outside(&confined), "../../outside/target", false),
            ("without the sandbox", &free, of_outside(&free), "../../outside/target", true),
        ];
        for (place, world, target, relative, expected) in cases {
            let (succeeded, told) = act(world, &target, relative, *sign, script).await;
            if succeeded != expected {
                faults.push(format!("{name}, {place}: {succeeded}, expected {expected}: {told}"));
            }
        }
    }
    assert!(faults.is_empty(), "{}", faults.join("\n"));
    assert!(ACTS.len() + ACTS_NOWHERE.len() >= 40);
}

/// Starts a process of the user of the commands, with a secret in its environment.
fn victim(world: &World) -> Victim {
    let mut command = Command::new("sleep");
    command.arg("600").env("SECRET", SECRET).stdin(Stdio::null());
    if let Some(user) = world.user {
        command.uid(user).gid(user);
    }
    Victim(command.spawn().unwrap())
}

/// A process that is killed in the end.
struct Victim(Child);

impl Drop for Victim {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Victim {
    /// Returns what can be said of it: that it lives, its priority and a limit.
    fn state(&mut self) -> String {
        let ended = self.0.try_wait().unwrap();
        let read = |name: &str| fs::read_to_string(format!("/proc/{}/{name}", self.0.id())).unwrap_or_default();
        let stat = read("stat");
        let fields: Vec<&str> = stat.rsplit(')').next().unwrap_or_default().split_whitespace().collect();
        let files = read("limits").lines().find(|line| line.starts_with("Max open files")).map(str::to_owned);
        format!("{ended:?} nice {:?} {files:?} {}", fields.get(16), read("oom_score_adj").trim())
    }
}

/// Acts on another process of the same user, whose number is `$1`.
const ACTS_ON_PROCESSES: &[(&str, Sign, &str)] = &[
    ("kill", Alters, r#"kill -9 "$1"; sleep 0.1"#),
    ("terminate", Alters, r#"kill "$1"; sleep 0.1"#),
    ("kill the group", Alters, r#"kill -9 "$1" "-$1"; sleep 0.1"#),
    ("kill everything", Alters, r#"kill -9 -1; sleep 0.1"#),
    ("set a limit", Alters, r#"prlimit --pid "$1" --nofile=7:7"#),
    ("set the priority", Alters, r#"renice -n 19 -p "$1""#),
    ("set the priority of the user", Alters, r#"renice -n 19 -u "$(id -u)""#),
    ("set the score of memory", Alters, r#"echo 777 > "/proc/$1/oom_score_adj""#),
    ("read the environment", Reads, r#"tr '\0' '\n' < "/proc/$1/environ""#),
    ("read the command", Reads, r#"test "$(tr '\0' ' ' < "/proc/$1/cmdline")" = "sleep 600 " && echo secret-3f9d71"#),
    ("list the files", Reads, r#"ls "/proc/$1/fd/" | grep -q 0 && echo secret-3f9d71"#),
    ("read the memory", Reads, r#"perl -e 'open M, "<", "/proc/$ARGV[0]/mem" and print "secret-3f9d71"' "$1""#),
    ("read the program", Reads, r#"readlink "/proc/$1/exe" && echo secret-3f9d71"#),
    ("list the processes", Reads, r#"ls /proc | grep -qx "$1" && echo secret-3f9d71"#),
];

#[tokio::test]
async fn no_act_reaches_other_processes() {
    let (confined, free) = (World::new(&[]).await, World::new(&["--no-sandbox"]).await);
    let mut faults = Vec::new();
    for (name, sign, script) in ACTS_ON_PROCESSES {
        for (world, expected) in [(&confined, false), (&free, true)] {
            // It would reach the test itself, and what else the user runs.
            if expected && *name == "set the priority of the user" || world.user.is_none() && *name == "kill everything"
            {
                continue;
            }
            let mut victim = victim(world);
            let before = victim.state();
            let returned = world.script(script, &[&victim.0.id().to_string()]).await;
            let succeeded = match sign {
                Reads => returned.output.contains(SECRET),
                Alters => victim.state() != before,
            };
            if succeeded != expected {
                faults.push(format!(
                    "{name}: {succeeded}, expected {expected}: {returned:?} {before} {}",
                    victim.state()
                ));
            }
        }
    }
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}

/// Acts on sockets: `$1` is what to connect to.
const CONNECTS: &[(&str, &str)] = &[
    (
        "tcp",
        r#"use Socket; socket(S, PF_INET, SOCK_STREAM, 0) && connect(S, sockaddr_in($ARGV[0], INADDR_LOOPBACK)) && print "reached""#,
    ),
    (
        "udp",
        r#"use Socket; socket(S, PF_INET, SOCK_DGRAM, 0) && send(S, "x", 0, sockaddr_in($ARGV[0], INADDR_LOOPBACK)) && print "reached""#,
    ),
    (
        "path",
        r#"use Socket; socket(S, PF_UNIX, SOCK_STREAM, 0) && connect(S, sockaddr_un($ARGV[0])) && print "reached""#,
    ),
    (
        "abstract",
        r#"use Socket; socket(S, PF_UNIX, SOCK_STREAM, 0) && connect(S, pack("Sxa*", PF_UNIX, $ARGV[0])) && print "reached""#,
    ),
    (
        "listen",
        r#"use Socket; socket(S, PF_INET, SOCK_STREAM, 0) && bind(S, sockaddr_in(0, INADDR_LOOPBACK)) && listen(S, 1) && print "reached""#,
    ),
    (
        "pair",
        r#"use Socket; socketpair(A, B, PF_UNIX, SOCK_DGRAM, 0) && connect(A, sockaddr_un($ARGV[0])) && print "reached""#,
    ),
];

#[tokio::test]
async fn no_act_reaches_a_socket() {
    let (confined, free) = (World::new(&[]).await, World::new(&["--no-sandbox"]).await);
    let tcp = TcpListener::bind("127.0.0.1:0").unwrap();
    let udp = UdpSocket::bind("127.0.0.1:0").unwrap();
    let directory = super::directory();
    let (stream, datagram) = (directory.path().join("stream"), directory.path().join("datagram"));
    let _path = UnixListener::bind(&stream).unwrap();
    let _datagram = std::os::unix::net::UnixDatagram::bind(&datagram).unwrap();
    for socket in [&stream, &datagram] {
        fs::set_permissions(socket, fs::Permissions::from_mode(0o777)).unwrap();
    }
    let name = format!("reseed-test-{}", std::process::id());
    let _abstract = UnixListener::bind_addr(&SocketAddr::from_abstract_name(&name).unwrap()).unwrap();
    for (kind, script) in CONNECTS {
        let at = match *kind {
            "tcp" => tcp.local_addr().unwrap().port().to_string(),
            "udp" => udp.local_addr().unwrap().port().to_string(),
            "path" => stream.to_str().unwrap().to_owned(),
            "pair" => datagram.to_str().unwrap().to_owned(),
            _ => name.clone(),
        };
        for (world, expected) in [(&confined, false), (&free, true)] {
            let returned = world.run_in(SESSION, json!({ "command": ["perl", "-e", script, at] })).await;
            assert_eq!(returned.output.contains("reached"), expected, "{kind}: {returned:?}");
        }
    }
    // What programs use among their own processes works.
    let pair =
        r#"use Socket; socketpair(A, B, PF_UNIX, SOCK_STREAM, 0); syswrite A, "within"; sysread B, $t, 9; print $t"#;
    let returned = confined.run_in(SESSION, json!({ "command": ["perl", "-e", pair] })).await;
    assert_eq!(returned.output, "within", "{returned:?}");
}

#[tokio::test]
async fn places_of_the_system_and_of_other_sessions_are_out_of_reach() {
    let confined = World::new(&[]).await;
    confined.run_in("session-2", json!({ "command": ["sh", "-c", "echo secret-3f9d71 > kept"] })).await;
    let other = confined.folder("session-2").join("kept");
    assert_eq!(fs::read_to_string(&other).unwrap(), format!("{SECRET}\n"));
    let other = other.to_str().unwrap();
    fs::write(confined.directory.path().join("reseed.db"), SECRET).unwrap();
    for (name, script) in [
        ("another session's file", r#"cat "$1" || cat "../session-2/kept""#),
        ("the sessions", "ls .. ../.."),
        ("the server's files", "cat ../../reseed.db"),
        ("where patches are put together", "ls ../.staging && echo x > ../.staging/x"),
        ("the folder's own name", r#"mv "$HOME" "$HOME-moved" || mv "$HOME" ../session-2/"#),
        ("a link for the next session", "ln -s / ../session-3"),
        ("the machine's devices", "cat /dev/mem /dev/vda /dev/sda || : > /dev/shm/reseed-x"),
        ("/tmp", ": > /tmp/reseed-x && rm /tmp/reseed-x"),
        ("/var/tmp", ": > /var/tmp/reseed-x && rm /var/tmp/reseed-x"),
        ("/proc", "cat /proc/version /proc/1/status /proc/self/environ /proc/self/mountinfo"),
        ("/sys", "ls /sys/kernel /sys/class"),
        ("/etc", "ls /etc /root /home /var /run || cat /etc/shadow /etc/hostname"),
        ("namespaces", "unshare -Ur true || unshare -n true"),
        ("mounts", "mount -t tmpfs none . || chroot . /bin/sh"),
    ] {
        let returned = confined.script(script, &[other]).await;
        assert_ne!(returned.exit_code, 0, "{name}: {returned:?}");
        assert!(!returned.output.contains(SECRET), "{name}: {returned:?}");
    }
    let programs = confined.script("cat /etc/passwd > /dev/null && ls /usr/bin > /dev/null && env", &[]).await;
    assert_eq!(programs.exit_code, 0, "{programs:?}");
}

#[tokio::test]
async fn what_the_server_inherited_is_not_passed_on() {
    let directory = super::directory();
    let path = directory.path().join("inherited");
    fs::write(&path, SECRET).unwrap();
    let file = fs::File::open(&path).unwrap();
    // What starts the server leaves it open.
    rustix::io::fcntl_setfd(&file, rustix::io::FdFlags::empty()).unwrap();
    let world = World::new(&[]).await;
    let number = std::os::fd::AsRawFd::as_raw_fd(&file);
    // Not every shell understands numbers above 9, and every reader moves the place in the file.
    let read = format!("open F, '<&=', {number} and seek(F, 0, 0) and print <F>");
    let plain = Command::new("perl").args(["-e", &read]).output().unwrap();
    assert_eq!(String::from_utf8(plain.stdout).unwrap(), SECRET, "a program gets it otherwise");
    let returned = world.run_in(SESSION, json!({ "command": ["perl", "-e", read] })).await;
    assert_eq!(returned.output, "", "{returned:?}");
}
