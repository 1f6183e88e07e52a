//! The sessions' folders: one per session, created when it is needed and removed with its session.
//!
//! Names that begin with a dot are the server's own: where patches are assembled, and folders that are being removed.
//!
//! Several servers may use one directory, for example one that `reseed check` starts beside the running one. Each holds
//! a shared lock on [`STAGING`]. Only a server that finds itself alone removes what an earlier one left.

use crate::options::UserAndGroup;
use rustix::{
    fs::{
        AtFlags, CWD, Dir, FlockOperation, Mode, OFlags, RenameFlags, chmodat, fchown, flock, mkdirat, openat,
        renameat_with, unlinkat,
    },
    io::Errno,
    process::{Gid, Uid},
};
use std::{
    fs::DirBuilder,
    io,
    os::{
        fd::{AsFd, AsRawFd as _, OwnedFd},
        unix::fs::DirBuilderExt as _,
    },
    path::{Path, PathBuf},
};

/// The directory in which patches are assembled. It is on the same file system as the folders, and commands cannot see
/// it.
const STAGING: &str = ".staging";

/// Name of the directory with an empty directory for each session whose folder was made here. Nothing else is listed,
/// so nothing else is removed as the folder of a deleted session.
const MADE: &str = ".made";

/// The prefix of the name of a folder that is being removed.
const REMOVED: &str = ".removed-";

/// Maximum entries of a directory that are listed at once.
const BATCH: usize = 512;

/// Maximum number of sessions that are listed.
const LISTED_MAX: usize = 10_000;

/// The folder of all calls of a client that knows of no sessions.
const SHARED: &str = ".shared";

/// Maximum characters of a session's id.
const ID_CHARS_MAX: usize = 64;

/// A session, by the name of its folder.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Session(String);

impl Session {
    /// Checks an id; returns `None` if it cannot be the name of a folder.
    pub(crate) fn parse(id: &str) -> Option<Self> {
        let is_allowed = |letter: u8| letter.is_ascii_alphanumeric() || b"._:-".contains(&letter);
        let is_id = (1..=ID_CHARS_MAX).contains(&id.len()) && !id.starts_with('.') && id.bytes().all(is_allowed);
        is_id.then(|| Self(id.to_owned()))
    }

    /// Returns the stand-in session for a client that knows of no sessions.
    pub(crate) fn shared() -> Self {
        Self(SHARED.to_owned())
    }

    /// Returns a session for a trial. If this process ends before it removes the folder, the next start removes it.
    pub(crate) fn trial() -> Self {
        Self(removed_name())
    }

    /// Returns the name of its folder.
    pub(crate) fn name(&self) -> &str {
        &self.0
    }
}

/// Returns a new name for a folder that is to be removed.
fn removed_name() -> String {
    format!("{REMOVED}{:016x}", fastrand::u64(..))
}

/// The directory of all folders.
#[derive(Debug)]
pub(crate) struct Folders {
    /// Without symbolic links.
    path: PathBuf,
    root: OwnedFd,
    staging: OwnedFd,
    made: OwnedFd,
    user: Option<UserAndGroup>,
}

/// The names of what an earlier server left.
#[derive(Debug, Default)]
pub(crate) struct Left {
    staged: Vec<Vec<u8>>,
    removed: Vec<Vec<u8>>,
}

/// A session's folder.
#[derive(Debug)]
pub(crate) struct Folder {
    /// Its path, without symbolic links.
    pub(crate) path: PathBuf,
    /// The open directory.
    pub(crate) root: OwnedFd,
}

impl Folders {
    /// Opens the directory, and creates it if it does not exist. Also returns what an earlier server left there: parts
    /// of patches, and folders whose removal it did not finish.
    ///
    /// # Errors
    /// It cannot be created or used.
    pub(crate) fn open(path: &Path, user: Option<UserAndGroup>) -> io::Result<(Self, Left)> {
        // Another user must be able to reach its folders through it, but not to list them.
        let mode = if user.is_some() { 0o711 } else { 0o700 };
        if let Some(parent) = path.parent() {
            DirBuilder::new().recursive(true).mode(0o700).create(parent)?;
        }
        match DirBuilder::new().mode(mode).create(path) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
            _ => {}
        }
        let path = path.canonicalize()?;
        let root = openat(CWD, &path, directory(), Mode::empty())?;
        make(&root, STAGING)?;
        let staging = openat(&root, STAGING, directory(), Mode::empty())?;
        make(&root, MADE)?;
        let made = openat(&root, MADE, directory(), Mode::empty())?;
        let mut left = Left::default();
        if flock(&staging, FlockOperation::NonBlockingLockExclusive).is_ok() {
            left.staged = names(&staging, usize::MAX)?;
            left.removed = names(&root, usize::MAX)?;
            left.removed.retain(|name| name.starts_with(REMOVED.as_bytes()));
        }
        flock(&staging, FlockOperation::LockShared)?;
        Ok((Self { path, root, staging, made, user }, left))
    }

    /// Returns the path.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the directory in which patches are assembled.
    pub(crate) fn staging(&self) -> &OwnedFd {
        &self.staging
    }

    /// Returns the user who owns the folders, if it is not the server's.
    pub(crate) fn user(&self) -> Option<UserAndGroup> {
        self.user
    }

    /// Returns a session's folder, which is created if it does not exist.
    ///
    /// # Errors
    /// It cannot be created.
    pub(crate) fn of(&self, session: &Session) -> io::Result<Folder> {
        let name = session.name();
        let is_new = make(&self.root, name)?;
        let root = openat(&self.root, name, directory(), Mode::empty())?;
        if is_new {
            if !name.starts_with('.') {
                make(&self.made, name)?;
            }
            if let Some(user) = self.user {
                own(&root, user)?;
            }
        }
        Ok(Folder { path: self.path.join(name), root })
    }

    /// Returns the ids of sessions whose folders this program made. If there are very many, chooses among them at
    /// random, so that each is listed sooner or later.
    ///
    /// # Errors
    /// They cannot be listed.
    pub(crate) fn sessions(&self) -> io::Result<Vec<String>> {
        let names = names(&self.made, usize::MAX)?;
        let ids = names.into_iter().filter_map(|name| Session::parse(str::from_utf8(&name).ok()?));
        Ok(fastrand::choose_multiple(ids.map(|session| session.0), LISTED_MAX))
    }

    /// Renames a session's folder for its removal, and returns the new name for [`Self::remove`]; `None` if it has no
    /// folder.
    ///
    /// # Errors
    /// The folder stays.
    pub(crate) fn set_aside(&self, session: &Session) -> io::Result<Option<String>> {
        let _ = unlinkat(&self.made, session.name(), AtFlags::REMOVEDIR);
        let removed = removed_name();
        match renameat_with(&self.root, session.name(), &self.root, removed.as_str(), RenameFlags::NOREPLACE) {
            Err(Errno::NOENT) => Ok(None),
            outcome => Ok(outcome.map(|()| Some(removed))?),
        }
    }

    /// Removes a folder with everything in it. This takes the longer, the more files there are.
    ///
    /// # Errors
    /// A part of it cannot be removed.
    pub(crate) fn remove(&self, name: &str) -> io::Result<()> {
        Ok(remove_all(&self.root, name.as_bytes())?)
    }

    /// Removes what an earlier server left.
    ///
    /// # Errors
    /// A part of it cannot be removed.
    pub(crate) fn clean(&self, left: &Left) -> io::Result<()> {
        left.staged.iter().try_for_each(|name| remove_all(&self.staging, name))?;
        Ok(left.removed.iter().try_for_each(|name| remove_all(&self.root, name))?)
    }
}

/// Returns the flags for opening a directory without following a link.
fn directory() -> OFlags {
    OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC
}

/// Creates a directory for its owner alone; returns false if it exists.
fn make(parent: &OwnedFd, name: &str) -> rustix::io::Result<bool> {
    match mkdirat(parent, name, Mode::RWXU) {
        Ok(()) => Ok(true),
        Err(Errno::EXIST) => Ok(false),
        Err(error) => Err(error),
    }
}

/// Gives an open file or directory to a user.
pub(crate) fn own(file: impl AsFd, user: UserAndGroup) -> rustix::io::Result<()> {
    fchown(file, Some(Uid::from_raw(user.user)), Some(Gid::from_raw(user.group)))
}

/// Returns at most `count` names in a directory.
fn names(directory: &OwnedFd, count: usize) -> rustix::io::Result<Vec<Vec<u8>>> {
    let entries = Dir::read_from(directory)?.map(|entry| Ok(entry?.file_name().to_bytes().to_vec()));
    let is_own = |name: &rustix::io::Result<Vec<u8>>| !matches!(name.as_deref(), Ok(b"." | b".."));
    entries.filter(is_own).take(count).collect()
}

/// Opens a directory that is to be removed, even if its owner has forbidden that.
fn open_any(parent: &OwnedFd, name: &[u8]) -> rustix::io::Result<OwnedFd> {
    match openat(parent, name, directory(), Mode::empty()) {
        Err(Errno::ACCESS) => {
            permit(parent, name)?;
            openat(parent, name, directory(), Mode::empty())
        }
        opened => opened,
    }
}

/// Gives a directory's owner all permissions in it. The path through `/proc` leads to that directory, even if something
/// has replaced it with a link in the meantime.
fn permit(parent: &OwnedFd, name: &[u8]) -> rustix::io::Result<()> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let at = openat(parent, name, flags, Mode::empty())?;
    chmodat(CWD, format!("/proc/self/fd/{}", at.as_raw_fd()), Mode::RWXU, AtFlags::empty())
}

/// Removes a file or an empty directory. Returns false if the directory is not empty.
fn remove_one(parent: &OwnedFd, name: &[u8]) -> rustix::io::Result<bool> {
    match unlinkat(parent, name, AtFlags::empty()) {
        Err(Errno::ISDIR | Errno::PERM) => match unlinkat(parent, name, AtFlags::REMOVEDIR) {
            Err(Errno::NOTEMPTY | Errno::EXIST) => Ok(false),
            outcome => outcome.map(|()| true),
        },
        Err(Errno::NOENT) => Ok(true),
        outcome => outcome.map(|()| true),
    }
}

/// Removes a directory and everything in it, without recursion, because a command can nest directories deeper than any
/// stack or path allows. Inner directories are moved to the top, and emptied there in turn.
fn remove_all(parent: &OwnedFd, name: &[u8]) -> rustix::io::Result<()> {
    if remove_one(parent, name)? {
        return Ok(());
    }
    let top = open_any(parent, name)?;
    let mut moved = 0_u64;
    loop {
        let entries = names(&top, BATCH)?;
        if entries.is_empty() {
            return unlinkat(parent, name, AtFlags::REMOVEDIR);
        }
        for entry in entries {
            if remove_one(&top, &entry)? {
                continue;
            }
            let inner = open_any(&top, &entry)?;
            loop {
                let entries = names(&inner, BATCH)?;
                if entries.is_empty() {
                    break;
                }
                for sub in entries {
                    if !remove_one(&inner, &sub)? {
                        move_up(&inner, &sub, &top, &mut moved)?;
                    }
                }
            }
        }
    }
}

/// Moves a directory to the top, under a name that is free there.
fn move_up(parent: &OwnedFd, name: &[u8], top: &OwnedFd, moved: &mut u64) -> rustix::io::Result<()> {
    loop {
        *moved += 1;
        let free = moved.to_string();
        match renameat_with(parent, name, top, free.as_str(), RenameFlags::NOREPLACE) {
            Err(Errno::EXIST) => {}
            // Its owner lacks the write permission that moving it needs.
            Err(Errno::ACCESS) => permit(parent, name)?,
            outcome => return outcome,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Folders, Session};
    use std::{
        fs,
        os::unix::fs::{MetadataExt as _, PermissionsExt as _, symlink},
    };

    fn folders() -> (tempfile::TempDir, Folders) {
        let directory = tempfile::tempdir().expect("a directory");
        let (folders, left) = Folders::open(&directory.path().join("a/workspaces"), None).expect("they open");
        assert_eq!((left.staged.len(), left.removed.len()), (0, 0));
        (directory, folders)
    }

    fn session(id: &str) -> Session {
        Session::parse(id).expect("an id")
    }

    fn remove(folders: &Folders, session: &Session) {
        let removed = folders.set_aside(session).expect("set aside").expect("there is a folder");
        folders.remove(&removed).expect("removed");
    }

    #[test]
    fn only_folders_that_were_made_here_are_listed() {
        let (_directory, folders) = folders();
        fs::create_dir(folders.path().join("photos")).expect("made");
        fs::write(folders.path().join("reseed.db"), "1").expect("written");
        folders.of(&session("photos")).expect("a folder");
        folders.of(&session("session-1")).expect("a folder");
        assert_eq!(folders.sessions().expect("listed"), ["session-1"]);
        remove(&folders, &session("session-1"));
        assert_eq!(folders.sessions().expect("listed"), Vec::<String>::new());
    }

    #[test]
    fn a_folder_is_for_its_owner_alone_and_kept_until_it_is_removed() {
        let (directory, folders) = folders();
        let session = session("session-1");
        let folder = folders.of(&session).expect("a folder");
        assert_eq!(fs::metadata(&folder.path).expect("it exists").mode() & 0o7777, 0o700);
        fs::write(folder.path.join("kept"), "1").expect("written");
        let again = folders.of(&session).expect("the same folder");
        assert_eq!(fs::read_to_string(again.path.join("kept")).expect("kept"), "1");

        let outside = directory.path().join("outside");
        fs::create_dir(&outside).expect("made");
        fs::write(outside.join("file"), "2").expect("written");
        symlink(&outside, folder.path.join("link")).expect("linked");
        fs::create_dir_all(folder.path.join("1/2/3")).expect("made");
        fs::create_dir(folder.path.join("closed")).expect("made");
        fs::write(folder.path.join("closed/in"), "3").expect("written");
        fs::set_permissions(folder.path.join("closed"), fs::Permissions::from_mode(0o000)).expect("closed");
        remove(&folders, &session);
        assert_eq!(folders.set_aside(&session).expect("no fault"), None);
        let mut left: Vec<_> =
            fs::read_dir(folders.path()).expect("listed").map(|entry| entry.expect("one").file_name()).collect();
        left.sort();
        assert_eq!(left, [".made", ".staging"]);
        assert_eq!(fs::read_to_string(outside.join("file")).expect("kept"), "2");
    }

    #[test]
    fn what_an_earlier_server_left_is_removed_by_one_that_is_alone_and_nothing_else() {
        let (_directory, folders) = folders();
        let path = folders.path().to_owned();
        folders.of(&session("kept")).expect("a folder");
        folders.of(&Session::shared()).expect("a folder");
        folders.of(&Session::trial()).expect("a folder");
        fs::create_dir_all(path.join(".removed-1/a/b")).expect("made");
        fs::write(path.join(".staging/1"), "").expect("written");
        let (_, beside) = Folders::open(&path, None).expect("it opens");
        assert_eq!((beside.staged.len(), beside.removed.len()), (0, 0), "another server is running");
        drop(folders);
        let (folders, left) = Folders::open(&path, None).expect("it opens");
        // A patch of this server.
        fs::write(path.join(".staging/2"), "").expect("written");
        folders.clean(&left).expect("removed");
        let mut names: Vec<_> =
            fs::read_dir(&path).expect("listed").map(|entry| entry.expect("one").file_name()).collect();
        names.sort();
        assert_eq!(names, [".made", ".shared", ".staging", "kept"]);
        assert_eq!([".staging/1", ".staging/2"].map(|name| path.join(name).exists()), [false, true]);
    }

    #[test]
    fn only_ids_that_can_be_names_have_folders() {
        for id in ["", ".", "..", ".staging", ".removed-1", ".shared", "a/b", "a\0", "é", &"x".repeat(65)] {
            assert_eq!(Session::parse(id), None, "{id}");
        }
        for id in ["a", "ses_1", "A.b:c-9", &"x".repeat(64)] {
            assert_eq!(session(id).name(), id);
        }
    }

    #[test]
    fn directories_nested_deeper_than_a_path_is_long_are_removed() {
        let (_directory, folders) = folders();
        let session = session("deep");
        let mut at = folders.of(&session).expect("a folder").root;
        for _ in 0..3_000 {
            super::make(&at, "d").expect("made");
            at = rustix::fs::openat(&at, "d", super::directory(), rustix::fs::Mode::empty()).expect("opened");
        }
        drop(at);
        remove(&folders, &session);
        assert!(!folders.path().join("deep").exists());
    }
}
