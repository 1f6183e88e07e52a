//! What a command may use, and what is left of it: nothing.

use super::{GREEDY, SESSION, World, client::PATIENCE, returned};
use serde_json::json;
use std::{fs, time::Duration};
use tokio::time::{Instant, sleep, timeout};

/// Returns how many processes have this text among their arguments.
pub(super) fn processes(marker: &str) -> usize {
    let processes = fs::read_dir("/proc").unwrap().flatten();
    let arguments = processes.filter_map(|entry| fs::read(entry.path().join("cmdline")).ok());
    arguments.filter(|arguments| String::from_utf8_lossy(arguments).contains(marker)).count()
}

/// Waits until no process has this text among its arguments.
pub(super) async fn gone(marker: &str) -> bool {
    let start = Instant::now();
    while processes(marker) > 0 {
        if start.elapsed() > PATIENCE {
            return false;
        }
        sleep(Duration::from_millis(5)).await;
    }
    true
}

/// Ways of leaving a process behind; `$1` is the number of seconds that it sleeps.
const LEFT_BEHIND: &[(&str, &str)] = &[
    ("in the background", "sleep $1 & echo started"),
    ("without hangup", "nohup sleep $1 > /dev/null 2>&1 & echo started"),
    ("of a subshell", "(sleep $1 &) ; echo started"),
    ("in a session of its own", "setsid sleep $1 & sleep 0.1; echo started"),
    ("in a session, forked", "setsid --fork sleep $1; sleep 0.1; echo started"),
    ("in a group of its own", "set -m; sleep $1 & echo started"),
    (
        "as a daemon",
        r#"perl -e 'use POSIX; exit if fork; setsid; exit if fork; exec "sleep", $ARGV[0]' $1; sleep 0.1; echo started"#,
    ),
    (
        "that forks on and on",
        r#"perl -e 'use POSIX; setsid; $0 = "sleep $ARGV[0]"; while (1) { exit if fork; setsid }' $1 & sleep 0.1; echo started"#,
    ),
    ("that ignores signals", "trap '' TERM INT HUP QUIT; sleep $1 & echo started"),
    ("that stopped itself", r#"sh -c 'kill -STOP $$; sleep $1' sh $1 & sleep 0.1; echo started"#),
    ("that stopped what waits for it", r#"kill -STOP $PPID; sleep $1 & echo started"#),
    ("that killed what waits for it", r#"(sleep $1 & kill -9 $PPID; sleep $1) & sleep 0.1; echo started"#),
    ("that killed its parent", r#"kill -9 $PPID; sleep $1"#),
];

#[tokio::test]
async fn no_process_outlives_its_call() {
    let (confined, free) =
        (World::new(&["--timeout-secs", "2"]).await, World::new(&["--timeout-secs", "2", "--no-sandbox"]).await);
    for (place, world) in [("confined", &confined), ("free", &free)] {
        for (index, (name, script)) in LEFT_BEHIND.iter().enumerate() {
            // Without the sandbox nothing protects the helper, which the documents say.
            if place == "free" && script.contains("$PPID") {
                continue;
            }
            // A number that no other process of this machine sleeps for.
            let seconds = format!("{}{index:02}{}", std::process::id(), usize::from(place == "free"));
            let returned = world.script(script, &[&seconds]).await;
            assert!(gone(&seconds).await, "{name}, {place}: {returned:?}");
        }
    }
}

#[tokio::test]
async fn each_limit_holds() {
    let _alone = GREEDY.lock().await;
    let flags = [
        ["--timeout-secs", "5"],
        ["--memory-bytes-max", "67108864"],
        ["--file-bytes-max", "1048576"],
        ["--processes-max", "64"],
    ];
    let world = World::new(&flags.concat()).await;
    for (name, script, expected) in [
        ("memory within", "perl -e '$a = \"x\" x 20e6; print length $a'", "20000000"),
        ("memory beyond", "perl -e '$a = \"x\" x 200e6; print length $a' 2>&1 | head -c 13", "Out of memory"),
        ("a file within", "head -c 1000000 /dev/zero > f && wc -c < f", "1000000\n"),
        ("a file beyond", "head -c 2000000 /dev/zero > f; wc -c < f", "1048576\n"),
        ("processes within", "for i in 1 2 3 4 5; do sleep 1 & done; echo all", "all\n"),
        ("open files", "ulimit -n", "1024\n"),
        ("a core dump", "ulimit -c", "0\n"),
        ("raising a limit", "ulimit -n 4096 2> /dev/null || ulimit -n", "1024\n"),
    ] {
        let returned = world.script(script, &[]).await;
        assert!(returned.output.contains(expected), "{name}: {returned:?}");
    }

    let many = "perl -e 'for (1..200) { my $p = fork; if (!defined $p) { print \"full at $_\"; last } if (!$p) { sleep 60; exit } }'";
    let returned = world.script(many, &[]).await;
    let at: u32 = returned.output.strip_prefix("full at ").expect(&returned.output).parse().unwrap();
    assert!(at <= 64, "{returned:?}");
}

#[tokio::test]
async fn time_and_output_are_limited_and_say_so() {
    let world = World::new(&["--timeout-secs", "20"]).await;
    let slow = json!({ "command": ["sh", "-c", "echo begun; sleep 60"], "timeout": 300 });
    let returned = world.run_in(SESSION, slow).await;
    assert_eq!(
        (returned.output.as_str(), returned.exit_code, returned.is_error),
        ("begun\n[stopped after 300 ms, its time limit]", 124, true)
    );

    let returned = world.script("yes | head -c 50000; echo end", &[]).await;
    assert_eq!(returned.exit_code, 0);
    assert!(returned.output.contains("\n[17236 bytes left out]\n"), "{returned:?}");
    assert!(returned.output.ends_with("y\nend\n"), "{returned:?}");

    let returned = world.script("yes", &[]).await;
    assert_eq!((returned.exit_code, returned.is_error), (137, true), "{returned:?}");
    assert!(returned.output.contains("bytes of output, the most that is allowed]"), "{returned:?}");
}

#[tokio::test]
async fn a_fork_bomb_ends_with_its_call_and_leaves_room_for_others() {
    let _alone = GREEDY.lock().await;
    let world = World::new(&["--timeout-secs", "2", "--processes-max", "64"]).await;
    let marker = format!("bomb-{}", std::process::id());
    let bomb = r#"f() { f | f & }; f; f; f"#;
    let arguments = json!({ "command": ["sh", "-c", format!("{bomb}; sleep 60"), marker] });
    let returned = timeout(PATIENCE, world.run_in(SESSION, arguments)).await.expect("it ends");
    assert!(gone(&marker).await, "{returned:?}");
    let after = world.run_in("session-2", json!({ "command": ["echo", "well"] })).await;
    assert_eq!(after.output, "well\n", "{after:?}");
}

#[tokio::test]
async fn calls_beyond_the_limit_wait() {
    let world = World::new(&["--calls-max", "1"]).await;
    let script = "test -e ../busy; mkdir busy 2>/dev/null || echo at once; sleep 0.05; rmdir busy";
    let arguments = json!({ "command": ["sh", "-c", script] });
    let call = || world.call("shell", SESSION, arguments.clone());
    for output in <[_; 4]>::from(tokio::join!(call(), call(), call(), call())) {
        let returned = returned(&output).unwrap();
        assert_eq!((returned.output.as_str(), returned.exit_code), ("", 0));
    }
}
