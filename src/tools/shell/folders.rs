//! The sessions' folders: one for each, made when it is needed and removed with its session.
//!
//! Names that begin with a dot are the server's own: where patches are put together, and what is being removed.

use crate::config::UserAndGroup;
use reseed_protocol::SessionId;
use rustix::{
    fs::{AtFlags, CWD, Dir, Mode, OFlags, RenameFlags, chmodat, fchown, mkdirat, openat, renameat_with, unlinkat},
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

/// Where patches are put together: on the same file system as the folders, and out of the commands' sight.
const STAGING: &str = ".staging";

/// The beginning of the name of a folder that is being removed.
const REMOVED: &str = ".removed-";

/// Entries of a directory that are listed at once.
const BATCH: usize = 512;

/// The directory of all folders.
#[derive(Debug)]
pub(crate) struct Folders {
    /// Without symbolic links.
    path: PathBuf,
    root: OwnedFd,
    staging: OwnedFd,
    user: Option<UserAndGroup>,
}

/// Names of what an earlier server left.
#[derive(Debug)]
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
    /// Opens the directory, and creates it if it does not exist.
    ///
    /// # Errors
    /// It cannot be created or used.
    pub(crate) fn open(path: &Path, user: Option<UserAndGroup>) -> io::Result<Self> {
        // Another user must be able to pass through it to its folders, but not to list them.
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
        Ok(Self { path, root, staging, user })
    }

    /// Returns the path.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the directory in which patches are put together.
    pub(crate) fn staging(&self) -> &OwnedFd {
        &self.staging
    }

    /// Returns the user to whom the folders belong, if that is not the server's.
    pub(crate) fn user(&self) -> Option<UserAndGroup> {
        self.user
    }

    /// Returns a session's folder, which is created if it does not exist.
    ///
    /// # Errors
    /// It cannot be created, or the session's id cannot be the name of a folder.
    pub(crate) fn of(&self, session: &SessionId) -> io::Result<Folder> {
        let name = name_of(session)?;
        let is_new = make(&self.root, name)?;
        let root = openat(&self.root, name, directory(), Mode::empty())?;
        if is_new && let Some(user) = self.user {
            own(&root, user)?;
        }
        Ok(Folder { path: self.path.join(name), root })
    }

    /// Removes a session's folder with all that is in it. Takes as long as the files are many.
    ///
    /// # Errors
    /// A part of it cannot be removed. The session has no folder any more even then.
    pub(crate) fn remove(&self, session: &SessionId) -> io::Result<()> {
        let name = name_of(session)?;
        let removed = format!("{REMOVED}{:016x}", fastrand::u64(..));
        match renameat_with(&self.root, name, &self.root, removed.as_str(), RenameFlags::NOREPLACE) {
            Err(Errno::NOENT) => return Ok(()),
            outcome => outcome?,
        }
        Ok(remove_all(&self.root, removed.as_bytes())?)
    }

    /// Returns what an earlier server left: parts of patches, and folders whose removal it did not finish. Call it
    /// before anything else makes such.
    ///
    /// # Errors
    /// The directory cannot be listed.
    pub(crate) fn left(&self) -> io::Result<Left> {
        let mut removed = names(&self.root, usize::MAX)?;
        removed.retain(|name| name.starts_with(REMOVED.as_bytes()));
        Ok(Left { staged: names(&self.staging, usize::MAX)?, removed })
    }

    /// Removes what an earlier server left.
    ///
    /// # Errors
    /// A part of it cannot be removed.
    pub(crate) fn clean(&self, left: &Left) -> io::Result<()> {
        left.staged.iter().try_for_each(|name| remove_all(&self.staging, name))?;
        Ok(left.removed.iter().try_for_each(|name| remove_all(&self.root, name))?)
    }

    /// Returns the sessions that have folders.
    ///
    /// # Errors
    /// The directory cannot be listed.
    pub(crate) fn sessions(&self) -> io::Result<Vec<SessionId>> {
        let names = names(&self.root, usize::MAX)?.into_iter().filter(|name| !name.starts_with(b"."));
        Ok(names.filter_map(|name| String::from_utf8(name).ok()?.parse().ok()).collect())
    }
}

/// Returns the name of a session's folder. Ids have no `/`, but may be dots alone.
fn name_of(session: &SessionId) -> io::Result<&str> {
    match session.as_str() {
        id if id.starts_with('.') => {
            Err(io::Error::other(format!("a session whose id begins with a dot (`{id}`) can have no folder")))
        }
        id => Ok(id),
    }
}

/// Flags for opening a directory, not what a link leads to.
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

/// Opens a directory that is to be removed; its owner may have forbidden that.
fn open_any(parent: &OwnedFd, name: &[u8]) -> rustix::io::Result<OwnedFd> {
    match openat(parent, name, directory(), Mode::empty()) {
        Err(Errno::ACCESS) => {
            permit(parent, name)?;
            openat(parent, name, directory(), Mode::empty())
        }
        opened => opened,
    }
}

/// Permits its owner everything in a directory. The way through `/proc` is to that directory, also if something has put
/// a link into its place meanwhile.
fn permit(parent: &OwnedFd, name: &[u8]) -> rustix::io::Result<()> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let at = openat(parent, name, flags, Mode::empty())?;
    chmodat(CWD, format!("/proc/self/fd/{}", at.as_raw_fd()), Mode::RWXU, AtFlags::empty())
}

/// Removes a file or an empty directory; returns false if it is a directory that is not empty.
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

/// Removes a directory and everything in it, without recursion: a command can nest directories deeper than any stack,
/// and than paths can be long. Directories move up to the top, where they are emptied in turn.
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
            // Its owner may not write to it, which moving it needs.
            Err(Errno::ACCESS) => permit(parent, name)?,
            outcome => return outcome,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Folders;
    use std::{
        fs,
        os::unix::fs::{MetadataExt as _, PermissionsExt as _, symlink},
    };

    fn folders() -> (tempfile::TempDir, Folders) {
        let directory = tempfile::tempdir().expect("a directory");
        let folders = Folders::open(&directory.path().join("a/workspaces"), None).expect("they open");
        (directory, folders)
    }

    #[test]
    fn a_folder_is_for_its_owner_alone_and_kept_until_it_is_removed() {
        let (directory, folders) = folders();
        let session = "session-1".parse().expect("an id");
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
        folders.remove(&session).expect("removed");
        folders.remove(&session).expect("nothing to remove");
        let left: Vec<_> =
            fs::read_dir(folders.path()).expect("listed").map(|entry| entry.expect("one").file_name()).collect();
        assert_eq!(left, [".staging"]);
        assert_eq!(fs::read_to_string(outside.join("file")).expect("kept"), "2");
    }

    #[test]
    fn what_an_earlier_server_left_is_removed_and_nothing_else() {
        let (_directory, folders) = folders();
        let session = "kept".parse().expect("an id");
        folders.of(&session).expect("a folder");
        fs::create_dir_all(folders.path().join(".removed-1/a/b")).expect("made");
        fs::write(folders.path().join(".staging/1"), "").expect("written");
        let left = folders.left().expect("listed");
        // A patch of this server.
        fs::write(folders.path().join(".staging/2"), "").expect("written");
        folders.clean(&left).expect("removed");
        let remains = |name: &str| folders.path().join(name).exists();
        assert_eq!([".removed-1", ".staging/1", ".staging/2", "kept"].map(remains), [false, false, true, true]);
        assert_eq!(folders.sessions().expect("listed"), [session]);
    }

    #[test]
    fn ids_that_are_dots_have_no_folder() {
        let (_directory, folders) = folders();
        for id in [".", "..", ".staging", ".removed-1"] {
            let error = folders.of(&id.parse().expect("an id")).expect_err(id);
            assert!(error.to_string().contains(id), "{error}");
            folders.remove(&id.parse().expect("an id")).expect_err(id);
        }
    }

    #[test]
    fn directories_nested_deeper_than_a_path_is_long_are_removed() {
        let (_directory, folders) = folders();
        let session = "deep".parse().expect("an id");
        let mut at = folders.of(&session).expect("a folder").root;
        for _ in 0..3_000 {
            super::make(&at, "d").expect("made");
            at = rustix::fs::openat(&at, "d", super::directory(), rustix::fs::Mode::empty()).expect("opened");
        }
        drop(at);
        folders.remove(&session).expect("removed");
        assert_eq!(folders.sessions().expect("listed"), []);
    }
}
