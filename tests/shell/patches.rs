//! `apply_patch` on real files: what it does, what it refuses, and that it does all or nothing.

use super::{SESSION, World, returned};
use serde_json::json;
use std::{
    fs,
    os::unix::fs::{MetadataExt as _, PermissionsExt as _, symlink},
    path::Path,
    sync::atomic::{AtomicBool, Ordering},
};

const SECRET: &str = "outside-51be0a\n";

/// Returns the files below a directory, a line each: path, mode, text.
fn files(directory: &Path) -> Vec<String> {
    let mut found = Vec::new();
    let mut open = vec![directory.to_owned()];
    while let Some(at) = open.pop() {
        for entry in fs::read_dir(&at).unwrap() {
            let path = entry.unwrap().path();
            let name = path.strip_prefix(directory).unwrap().to_str().unwrap().to_owned();
            let about = fs::symlink_metadata(&path).unwrap();
            if about.is_dir() {
                found.push(format!("{name}/"));
                open.push(path);
            } else if about.is_file() {
                found.push(format!("{name} {:o} {:?}", about.mode() & 0o777, fs::read_to_string(&path).unwrap()));
            } else {
                found.push(format!("{name} special"));
            }
        }
    }
    found.sort();
    found
}

/// Returns a world whose session has `a.txt` and `sub/b.sh`.
async fn world() -> World {
    let world = World::new(&[]).await;
    let made =
        world.script("printf '1\\n2\\n3\\n' > a.txt && mkdir sub && echo run > sub/b.sh && rmdir .tmp", &[]).await;
    assert_eq!(made.exit_code, 0, "{made:?}");
    fs::set_permissions(world.folder(SESSION).join("sub/b.sh"), fs::Permissions::from_mode(0o750)).unwrap();
    let staging = world.folder(".staging");
    assert_eq!(files(&staging), Vec::<String>::new());
    world
}

const BEFORE: [&str; 3] = ["a.txt 600 \"1\\n2\\n3\\n\"", "sub/", "sub/b.sh 750 \"run\\n\""];

#[tokio::test]
async fn a_patch_adds_changes_moves_and_deletes() {
    let world = world().await;
    let patch = "*** Add File: new/dir/c.txt\n+hello\n*** Update File: a.txt\n@@\n 1\n-2\n+two\n*** Update File: \
                 sub/b.sh\n*** Move to: bin/b.sh\n@@\n-run\n+ran";
    let output = world.patch(patch).await;
    let told = returned(&output).unwrap();
    assert_eq!(told.output, "Done:\nA new/dir/c.txt\nM a.txt\nM sub/b.sh -> bin/b.sh\n", "{output:?}");
    assert_eq!((told.exit_code, output.is_error), (0, false));
    let expected = [
        "a.txt 600 \"1\\ntwo\\n3\\n\"",
        "bin/",
        "bin/b.sh 750 \"ran\\n\"",
        "new/",
        "new/dir/",
        "new/dir/c.txt 600 \"hello\\n\"",
        "sub/",
    ];
    let folder = world.folder(SESSION);
    assert_eq!(files(&folder), expected);
    // Commands can change what a patch made.
    let owner = fs::metadata(&folder).unwrap().uid();
    for path in ["new", "new/dir", "new/dir/c.txt", "a.txt", "bin/b.sh"] {
        assert_eq!(fs::metadata(folder.join(path)).unwrap().uid(), owner, "{path}");
    }
    assert!(!world.patch("*** Delete File: a.txt\n*** Delete File: new/dir/c.txt").await.is_error);
    assert_eq!(files(&folder), ["bin/", "bin/b.sh 750 \"ran\\n\"", "new/", "new/dir/", "sub/"]);
    assert_eq!(files(&world.folder(".staging")), Vec::<String>::new());
}

#[tokio::test]
async fn the_original_form_of_the_call_is_understood() {
    let world = world().await;
    let patch = "*** Begin Patch\n*** Add File: c\n+x\n*** End Patch";
    for (workdir, expected) in [(None, "c"), (Some("sub"), "sub/c")] {
        let mut arguments = json!({ "command": ["apply_patch", patch] });
        if let Some(workdir) = workdir {
            arguments["workdir"] = json!(workdir);
        }
        let returned = world.run_in(SESSION, arguments).await;
        assert_eq!((returned.output, returned.exit_code), (format!("Done:\nA {expected}\n"), 0));
        assert_eq!(fs::read_to_string(world.folder(SESSION).join(expected)).unwrap(), "x\n");
    }
}

#[tokio::test]
async fn a_patch_that_fails_changes_nothing() {
    let world = world().await;
    let folder = world.folder(SESSION);
    // Each begins with steps that would succeed.
    let first = "*** Add File: new/dir/c.txt\n+x\n*** Update File: a.txt\n*** Move to: moved.txt\n@@\n-1\n+one\n*** \
                 Delete File: sub/b.sh\n";
    for (last, expected) in [
        ("*** Delete File: none", "`none` does not exist"),
        ("*** Delete File: sub", "`sub` is a directory"),
        ("*** Update File: none\n@@\n-x", "`none` does not exist"),
        ("*** Add File: new/dir/c.txt\n+y", "`new/dir/c.txt` is named twice"),
        ("*** Add File: new\n+y", "`new` exists already"),
        ("*** Add File: new/dir/c.txt/x\n+y", "leads through something that is no directory"),
        ("*** Add File: .\n+y", "names no file"),
    ] {
        let output = world.patch(&format!("{first}{last}")).await;
        assert!(output.is_error && output.text.contains(expected), "{last}: {output:?}");
        assert_eq!(files(&folder), BEFORE, "{last}");
        assert_eq!(files(&world.folder(".staging")), Vec::<String>::new(), "{last}");
    }
    for (patch, expected) in [
        ("*** Add File: a.txt\n+y".to_owned(), "`a.txt` exists already"),
        ("*** Update File: a.txt\n*** Move to: sub/b.sh\n@@\n-1".to_owned(), "`sub/b.sh` exists already"),
        ("*** Update File: a.txt\n@@\n-9".to_owned(), "`a.txt`: hunk 1"),
        ("*** Add File: a.txt/x\n+y".to_owned(), "leads through something that is no directory"),
        (format!("*** Add File: big\n+{}", "x".repeat(1024 * 1024)), "at most 1048576 are allowed"),
        ((0..101).map(|n| format!("*** Delete File: {n}\n")).collect(), "at most 100 are allowed"),
    ] {
        let output = world.patch(&patch).await;
        assert!(output.is_error && output.text.contains(expected), "{expected}: {}", output.text);
        assert_eq!(files(&folder), BEFORE, "{expected}");
    }
}

/// Attempts to reach beyond the folder. `out` is a link to a directory outside, `leak` to a file there, `gone` to one
/// that does not exist, `up` to `..`, `in` to the folder's own `sub`, `loop` to itself, and `pipe` is a pipe.
const ATTEMPTS: &[&str] = &[
    "*** Add File: ../new\n+x",
    "*** Add File: ../../outside/new\n+x",
    "*** Add File: sub/../../new\n+x",
    "*** Add File: OUTSIDE/new\n+x",
    "*** Add File: out/new\n+x",
    "*** Add File: out/deep/new\n+x",
    "*** Add File: up/new\n+x",
    "*** Add File: up/../../outside/new\n+x",
    "*** Add File: gone\n+x",
    "*** Add File: gone/new\n+x",
    "*** Add File: in/new\n+x",
    "*** Add File: leak\n+x",
    "*** Update File: leak\n@@\n-outside-51be0a\n+x",
    "*** Update File: out/file\n@@\n-outside-51be0a\n+x",
    "*** Update File: ../../outside/file\n@@\n-outside-51be0a\n+x",
    "*** Update File: OUTSIDE/file\n@@\n-outside-51be0a\n+x",
    "*** Update File: /proc/self/cwd/../file\n@@\n-outside-51be0a\n+x",
    "*** Update File: a.txt\n*** Move to: out/moved\n@@\n-1\n+x",
    "*** Update File: a.txt\n*** Move to: ../moved\n@@\n-1\n+x",
    "*** Update File: a.txt\n*** Move to: OUTSIDE/moved\n@@\n-1\n+x",
    "*** Update File: a.txt\n*** Move to: leak\n@@\n-1\n+x",
    "*** Update File: out/file\n*** Move to: stolen",
    "*** Delete File: out/file",
    "*** Delete File: leak",
    "*** Delete File: ../../outside/file",
    "*** Delete File: OUTSIDE/file",
    "*** Delete File: up/session-2",
    "*** Update File: loop\n@@\n-x",
    "*** Add File: loop/x\n+x",
    "*** Update File: pipe\n@@\n-x",
    "*** Delete File: pipe",
];

#[tokio::test]
async fn no_patch_reaches_beyond_the_folder() {
    let world = world().await;
    let (folder, outside) = (world.folder(SESSION), world.directory.path().canonicalize().unwrap().join("outside"));
    fs::create_dir(&outside).unwrap();
    fs::write(outside.join("file"), SECRET).unwrap();
    for (link, to) in [
        ("out", outside.clone()),
        ("leak", outside.join("file")),
        ("gone", outside.join("none")),
        ("up", "..".into()),
        ("in", "sub".into()),
        ("loop", "loop".into()),
    ] {
        symlink(to, folder.join(link)).unwrap();
    }
    world.script("mkfifo pipe; rmdir .tmp", &[]).await;
    let state = || [files(&folder), files(&outside), files(&world.folder(".staging"))];
    let before = state();
    for attempt in ATTEMPTS {
        let attempt = attempt.replace("OUTSIDE", outside.to_str().unwrap());
        let output = world.patch(&attempt).await;
        assert!(output.is_error, "{attempt}: {output:?}");
        assert!(!output.text.contains("51be0a"), "{attempt}: {output:?}");
        assert_eq!(state(), before, "{attempt}");
    }
    for workdir in ["..", "/", "out", "up"] {
        let patch = "*** Begin Patch\n*** Add File: new\n+x\n*** End Patch";
        let output =
            world.call("shell", SESSION, json!({ "command": ["apply_patch", patch], "workdir": workdir })).await;
        assert!(output.is_error, "{workdir}: {output:?}");
        assert_eq!(state(), before, "{workdir}");
    }
    // The same acts succeed within, so it is the place that is refused.
    let within = "*** Add File: sub/new\n+x\n*** Update File: a.txt\n*** Move to: sub/moved\n@@\n-1\n+x\n*** Delete File: sub/b.sh";
    assert!(!world.patch(within).await.is_error);
}

#[tokio::test(flavor = "multi_thread")]
async fn no_race_with_links_leads_out() {
    let world = world().await;
    let (folder, outside) = (world.folder(SESSION), world.directory.path().join("outside"));
    fs::create_dir(&outside).unwrap();
    fs::create_dir(folder.join("real")).unwrap();
    world.give(&folder.join("real"));
    for directory in [&outside, &folder.join("real")] {
        fs::write(directory.join("file"), "old\n").unwrap();
    }
    symlink(&outside, folder.join("link")).unwrap();
    let stop = AtomicBool::new(false);
    let (mut done, mut refused) = (0, 0);
    std::thread::scope(|scope| {
        // What a command could do meanwhile: the directory and the link change places all the time.
        scope.spawn(|| {
            while !stop.load(Ordering::Relaxed) {
                rustix::fs::renameat_with(
                    rustix::fs::CWD,
                    folder.join("real"),
                    rustix::fs::CWD,
                    folder.join("link"),
                    rustix::fs::RenameFlags::EXCHANGE,
                )
                .unwrap();
            }
        });
        let runtime = tokio::runtime::Handle::current();
        tokio::task::block_in_place(|| {
            for round in 0..400 {
                let patch = format!(
                    "*** Begin Patch\n*** Add File: real/{round}\n+x\n*** Update File: real/file\n@@\n-old\n+old\n*** End Patch"
                );
                let output = runtime.block_on(world.call("apply_patch", SESSION, json!({ "input": patch })));
                if output.is_error {
                    refused += 1;
                } else {
                    done += 1;
                }
            }
            stop.store(true, Ordering::Relaxed);
        });
    });
    assert_eq!(files(&outside), ["file 644 \"old\\n\""]);
    assert!(done > 0 && refused > 0, "the race is run: {done} were done and {refused} refused");
}
