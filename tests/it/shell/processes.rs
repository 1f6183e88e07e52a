//! What a command may use, and what is left of it: nothing.

use super::{GREEDY, SESSION, World, call, returned};
use serde_json::json;
use std::{fs, time::Duration};
use tokio::time::{Instant, sleep, timeout};

/// The patience with a machine that is busy; only a failing test reaches it.
const PATIENCE: Duration = Duration::from_secs(60);

/// Returns how many processes have this text among their arguments.
fn processes(marker: &str) -> usize {
    let processes = fs::read_dir("/proc").unwrap().flatten();
    let arguments = processes.filter_map(|entry| fs::read(entry.path().join("cmdline")).ok());
    arguments.filter(|arguments| String::from_utf8_lossy(arguments).contains(marker)).count()
}

/// Waits until no process has this text among its arguments.
async fn gone(marker: &str) -> bool {
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
    let (confined, free) = (
        World::new(&[("SHELL_TIMEOUT_SECS", "2")]).await,
        World::new(&[("SHELL_TIMEOUT_SECS", "2"), ("SHELL_SANDBOX", "off")]).await,
    );
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
async fn a_call_that_is_dropped_ends_at_once() {
    for sandbox in ["on", "off"] {
        let world = World::new(&[("SHELL_SANDBOX", sandbox)]).await;
        let seconds = format!("{}99{}", std::process::id(), usize::from(sandbox == "on"));
        let tools = world.shell.tools();
        let shell = tools.iter().find(|tool| tool.offer().name == "shell").unwrap();
        let script = "setsid sleep $1 & sleep $1";
        let arguments = json!({ "command": ["sh", "-c", script, "sh", seconds] });
        {
            let running = shell.call(call(SESSION, arguments));
            tokio::pin!(running);
            let begun = async {
                while processes(&seconds) < 2 {
                    sleep(Duration::from_millis(5)).await;
                }
            };
            tokio::select! {
                output = &mut running => panic!("{output:?}"),
                began = timeout(PATIENCE, begun) => began.expect("the command begins"),
            }
        }
        assert!(gone(&seconds).await, "sandbox {sandbox}");
    }
}

#[tokio::test]
async fn each_limit_holds() {
    let _alone = GREEDY.lock().await;
    let settings = [
        ("SHELL_TIMEOUT_SECS", "5"),
        ("SHELL_MEMORY_BYTES_MAX", "67108864"),
        ("SHELL_FILE_BYTES_MAX", "1048576"),
        ("SHELL_PROCESSES_MAX", "64"),
        ("SHELL_OUTPUT_BYTES_MAX", "1024"),
    ];
    let world = World::new(&settings).await;
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
    let world = World::new(&[("SHELL_TIMEOUT_SECS", "20"), ("SHELL_OUTPUT_BYTES_MAX", "1024")]).await;
    let slow = json!({ "command": ["sh", "-c", "echo begun; sleep 60"], "timeout": 300 });
    let returned = world.run_in(SESSION, slow).await;
    assert_eq!(
        (returned.output.as_str(), returned.exit_code, returned.is_error),
        ("begun\n[stopped after 300 ms, its time limit]", 124, true)
    );

    let returned = world.script("yes | head -c 5000; echo end", &[]).await;
    assert_eq!(returned.exit_code, 0);
    assert!(returned.output.contains("\n[3980 bytes left out]\n"), "{returned:?}");
    assert!(returned.output.ends_with("y\nend\n"), "{returned:?}");

    let returned = world.script("yes", &[]).await;
    assert_eq!((returned.exit_code, returned.is_error), (137, true), "{returned:?}");
    assert!(returned.output.contains("bytes of output, the most that is allowed]"), "{returned:?}");
}

#[tokio::test]
async fn a_fork_bomb_ends_with_its_call_and_leaves_room_for_others() {
    let _alone = GREEDY.lock().await;
    let world = World::new(&[("SHELL_TIMEOUT_SECS", "2"), ("SHELL_PROCESSES_MAX", "64")]).await;
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
    let world = World::new(&[("SHELL_CALLS_MAX", "1")]).await;
    let script = "test -e ../busy; mkdir busy 2>/dev/null || echo at once; sleep 0.05; rmdir busy";
    let calls = (0..4).map(|_| world.call("shell", SESSION, json!({ "command": ["sh", "-c", script] })));
    for output in futures_util::future::join_all(calls).await {
        let returned = returned(&output).unwrap();
        assert_eq!((returned.output.as_str(), returned.exit_code), ("", 0));
    }
}
