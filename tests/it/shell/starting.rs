//! What the server refuses to start with.

use super::{OTHER_USER, directory, is_root, settings_in};
use crate::support::binary;
use reseed::{config::Settings, tools::shell::Shell};
use std::fs;

/// Opens the shell with these settings and returns why it refused.
async fn refused(settings: &[(&str, &str)]) -> String {
    let directory = directory();
    let user = is_root().then_some(OTHER_USER);
    match Shell::open(&settings_in(directory.path(), user, settings)).await {
        Ok(_) => panic!("it started with {settings:?}"),
        Err(error) => error.to_string(),
    }
}

#[tokio::test]
async fn it_is_off_by_default() {
    let none: [(&str, &str); 0] = [];
    assert!(Shell::open(&Settings::from_iter(none).unwrap()).await.unwrap().is_none());
}

#[tokio::test]
async fn what_is_missing_or_unsafe_is_refused_with_what_to_do() {
    let program = directory();
    let silent = program.path().join("silent");
    fs::write(&silent, "#!/bin/sh\n").unwrap();
    fs::set_permissions(&silent, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    for (settings, expected) in [
        (vec![("SHELL_BINARY", "")], "SHELL_BINARY is not set"),
        (vec![("SHELL_BINARY", "/nowhere/reseed")], "/nowhere/reseed cannot be started"),
        (vec![("SHELL_BINARY", silent.to_str().unwrap())], "did not answer as the `reseed` binary does"),
        (vec![("SHELL_FOLDER", "/usr/share/reseed-x")], "commands can read everything in /usr"),
        (vec![("DATABASE_URL", "sqlite:///usr/lib/../lib/reseed-x.db")], "DATABASE_URL is /usr/lib"),
        (vec![("WORKING_DIRECTORY", "/bin")], "WORKING_DIRECTORY is /bin"),
        (vec![("SHELL_FOLDER", "/proc/workspaces")], "SHELL_FOLDER is /proc/workspaces"),
    ] {
        let told = refused(&settings).await;
        assert!(told.contains(expected), "{settings:?}: {told}");
    }
    if is_root() {
        let told = refused(&[("SHELL_USER", "")]).await;
        assert!(told.contains("does not hold for root") && told.contains("SHELL_USER"), "{told}");
    }
}

#[tokio::test]
async fn without_the_sandbox_there_is_one_user() {
    let given = [("SHELL_TOOL", "on"), ("SHELL_SANDBOX", "off"), ("AUTH_TOKENS", "ada:token-1-of-1,bob:token-1-of-2")];
    let told = Settings::from_iter(given).unwrap_err().to_string();
    assert!(told.contains("SHELL_SANDBOX is `off`, and there may be several users"), "{told}");
    let one = [("SHELL_TOOL", "on"), ("SHELL_SANDBOX", "off")];
    let warnings = Settings::from_iter(one).unwrap().warnings;
    assert!(warnings.iter().any(|warning| warning.contains("all rights of the server's user")), "{warnings:?}");
}

#[tokio::test]
async fn check_tries_the_sandbox_beside_a_running_server() {
    let directory = directory();
    let user = is_root().then(|| format!("{OTHER_USER}:{OTHER_USER}"));
    let mut given = vec![("SHELL_TOOL", "on"), ("MODEL_PROVIDER", "offline"), ("SHELL_FOLDER", "workspaces")];
    given.extend(user.as_ref().map(|user| ("SHELL_USER", user.as_str())));
    // What the commands of a server that is running have there.
    let staged = directory.path().join("workspaces/.staging/patch");
    let ended = binary::run(directory.path(), &["check"], &given).await;
    assert_eq!((ended.code, ended.faults.as_str()), (Some(0), ""), "{}", ended.printed);
    assert!(
        ended.printed.contains("\nshell       on, its sandbox works; folders of sessions in /"),
        "{}",
        ended.printed
    );
    fs::write(&staged, "").unwrap();
    let again = binary::run(directory.path(), &["check"], &given).await;
    assert_eq!((again.code, staged.exists()), (Some(0), true), "{}{}", again.printed, again.faults);
    let folders: Vec<_> = fs::read_dir(directory.path().join("workspaces")).unwrap().collect();
    assert_eq!(folders.len(), 1, "the folder of the trial is removed: {folders:?}");

    given.push(("SHELL_FOLDER", "/usr/share/reseed-x"));
    let refused = binary::run(directory.path(), &["check"], &given).await;
    assert_eq!(refused.code, Some(1), "{}", refused.printed);
    assert!(refused.faults.contains("commands can read everything in /usr"), "{}", refused.faults);
    assert!(!refused.printed.contains("\nanswer "), "it stops there, as a start does: {}", refused.printed);

    given.push(("TOOLS", "off"));
    let off = binary::run(directory.path(), &["check"], &given).await;
    assert_eq!(off.code, Some(0), "{}", off.faults);
    assert!(!off.printed.contains("\nshell "), "{}", off.printed);
}
