//! What the tools are for.

use super::{SESSION, World};
use serde_json::{Value, json};

#[tokio::test]
async fn commands_work_in_a_folder_that_stays() {
    let world = World::new(&[]).await;
    let home = world.folder(SESSION);
    let home = home.to_str().unwrap();
    for (command, workdir, expected, code) in [
        (&["echo", "a  b", "*"][..], None, "a  b *\n".to_owned(), 0),
        (&["sh", "-c", "echo out; echo err >&2; exit 3"], None, "out\nerr\n".to_owned(), 3),
        (&["sh", "-c", "kill -9 $$"], None, String::new(), 137),
        (&["pwd"], None, format!("{home}\n"), 0),
        (&["mkdir", "sub"], None, String::new(), 0),
        (&["pwd"], Some("sub"), format!("{home}/sub\n"), 0),
        (&["pwd"], Some(&format!("{home}/sub")[..]), format!("{home}/sub\n"), 0),
        (&["cat"], None, String::new(), 0),
        (
            &["no-such-program"],
            None,
            "cannot run `no-such-program`: No such file or directory (os error 2)\n".to_owned(),
            127,
        ),
        (&["sh", "-c", "timeout 0.1 sleep 60; echo $?"], None, "124\n".to_owned(), 0),
        (&["sh", "-c", "touch -d 2001-01-01 f && chmod +x f && date -r f +%Y"], None, "2001\n".to_owned(), 0),
        (&["sh", "-c", "t=$(mktemp) && echo ok > $t && cat $t"], None, "ok\n".to_owned(), 0),
        (
            &["sh", "-c", "printf 'b\\na\\n' | sort > /dev/null && echo fine > /dev/stderr"],
            None,
            "fine\n".to_owned(),
            0,
        ),
        (&["sh", "-c", "echo two | tee kept | cat && cat kept"], None, "two\ntwo\n".to_owned(), 0),
        (&["sh", "-c", "umask; ls -ld . | cut -c1-10"], None, "0077\ndrwx------\n".to_owned(), 0),
        (&["sh", "-c", "tar cf a.tar kept && mkdir x && tar xf a.tar -C x && cat x/kept"], None, "two\n".to_owned(), 0),
    ] {
        let mut arguments = json!({ "command": command });
        if let Some(workdir) = workdir {
            arguments["workdir"] = json!(workdir);
        }
        let returned = world.run_in(SESSION, arguments).await;
        assert_eq!((returned.output, returned.exit_code, returned.is_error), (expected, code, false), "{command:?}");
    }
    for (workdir, expected) in
        [("..", "outside"), ("/etc", "outside"), ("sub/../..", "outside"), ("none", "No such file")]
    {
        let output = world.call("shell", SESSION, json!({ "command": ["pwd"], "workdir": workdir })).await;
        assert!(output.is_error && output.text.contains(expected), "{workdir}: {output:?}");
    }
}

#[tokio::test]
async fn the_environment_has_nothing_of_the_server() {
    let world = World::new(&[]).await;
    let home = world.folder(SESSION);
    let home = home.to_str().unwrap();
    let returned = world.run_in(SESSION, json!({ "command": ["env"] })).await;
    let mut lines: Vec<&str> = returned.output.lines().collect();
    lines.sort_unstable();
    let expected = [
        format!("HOME={home}"),
        "LANG=C.UTF-8".to_owned(),
        "PATH=/usr/local/bin:/usr/bin:/bin:/usr/local/sbin:/usr/sbin:/sbin".to_owned(),
        format!("PWD={home}"),
        "TERM=dumb".to_owned(),
        format!("TMPDIR={home}/.tmp"),
    ];
    assert_eq!(lines, expected);
}

#[tokio::test]
async fn the_tools_say_what_they_do() {
    for (flags, open_world) in [(&[][..], false), (&["--no-sandbox"][..], true)] {
        let world = World::new(flags).await;
        let listed = world.client.ask("tools/list", json!({})).await;
        let named = |name: &str| -> Value {
            listed["tools"].as_array().unwrap().iter().find(|tool| tool["name"] == name).unwrap().clone()
        };
        let hints = |open_world: bool| json!({ "readOnlyHint": false, "destructiveHint": true, "idempotentHint": false, "openWorldHint": open_world });
        assert_eq!(named("shell")["annotations"], hints(open_world));
        assert_eq!(named("apply_patch")["annotations"], hints(false));
        assert_eq!(named("shell")["_meta"], json!({ "reseed/sequential": true }));
        let text = named("shell")["description"].as_str().unwrap().to_owned();
        assert_eq!(text.contains("no network"), !open_world, "{text}");
    }
}

#[tokio::test]
async fn arguments_that_do_not_fit_are_refused() {
    let world = World::new(&[]).await;
    for arguments in [
        json!({}),
        json!({ "command": "ls" }),
        json!({ "command": [1] }),
        json!({ "command": ["ls"], "timeout": -1 }),
        json!({ "command": ["ls"], "more": 1 }),
    ] {
        let output = world.call("shell", SESSION, arguments.clone()).await;
        assert!(output.is_error && output.text.contains("arguments do not fit"), "{arguments}: {output:?}");
    }
    for (command, expected) in [(json!([]), "empty"), (json!(["a\0b"]), "nul byte")] {
        let output = world.call("shell", SESSION, json!({ "command": command })).await;
        assert!(output.text.contains(expected), "{output:?}");
    }
}
