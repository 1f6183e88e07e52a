//! What the server refuses to start with.

use super::{OTHER_USER, client::Client, directory, is_root};

/// Starts a server with these flags and returns why it refused.
async fn refused(flags: &[&str]) -> String {
    let directory = directory();
    let client = Client::start(directory.path(), flags);
    assert!(client.initialize().await.is_none(), "it started with {flags:?}");
    let (code, told) = client.ended().await;
    assert!(code.is_some_and(|code| code > 0), "{code:?}: {told}");
    told
}

#[tokio::test]
async fn what_is_missing_or_unsafe_is_refused_with_what_to_do() {
    let user = format!("{OTHER_USER}:{OTHER_USER}");
    let as_user: &[&str] = if is_root() { &["--user", &user] } else { &[] };
    for (flags, expected) in [
        (["--folder", "/usr/share/reseed-x"], "commands can read everything in /usr"),
        (["--folder", "/proc/workspaces"], "--folder is /proc/workspaces"),
        (["--timeout-secs", "0"], "0 is not in 1..=3600"),
    ] {
        let told = refused(&[as_user, &flags].concat()).await;
        assert!(told.contains(expected), "{flags:?}: {told}");
    }
    let told = refused(&["--user", "0:1"]).await;
    assert!(told.contains("both whole numbers above 0"), "{told}");
    if is_root() {
        let told = refused(&[]).await;
        assert!(told.contains("does not hold for root") && told.contains("--user"), "{told}");
    }
}

#[tokio::test]
async fn a_working_directory_that_commands_can_read_is_refused() {
    let client = Client::start("/usr/share".as_ref(), &["--folder", "/tmp/reseed-x"]);
    assert!(client.initialize().await.is_none());
    let told = client.ended().await.1;
    assert!(told.contains("the working directory is /usr/share"), "{told}");
}
