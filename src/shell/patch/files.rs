//! The files that a patch reads and changes: within one folder, and all of them or none.
//!
//! The kernel opens every path from the open folder (`openat2` with `RESOLVE_BENEATH` and `RESOLVE_NO_SYMLINKS`). So no
//! link and no `..` leads out of it, not even a link that a command creates in the meantime. From then on only the open
//! directory is used, never its path. A file's identity is compared after the file was moved away, so a change by a
//! command in between is noticed and undone.

use super::path::RelativePath;
use crate::{folders::own, options::UserAndGroup};
use rustix::{
    fs::{
        AtFlags, FileType, Mode, OFlags, RenameFlags, ResolveFlags, Stat, fchmod, fstat, mkdirat, openat, openat2,
        renameat_with, statat, unlinkat,
    },
    io::Errno,
};
use std::{
    fs::File,
    io::{Read as _, Write as _},
    os::fd::OwnedFd,
};

/// Maximum bytes of a file that a patch can change.
const FILE_BYTES_MAX: u64 = 4 * 1024 * 1024;

/// The directories in which a patch works.
pub(crate) struct Base<'a> {
    /// The open folder.
    pub(crate) folder: &'a OwnedFd,
    /// An open directory on the same file system, for files that are not in their places.
    pub(crate) staging: &'a OwnedFd,
    /// The owner of new files, if it is not the server's user.
    pub(crate) user: Option<UserAndGroup>,
}

/// A file that was read.
pub(super) struct Read {
    /// Its text.
    pub(super) text: String,
    /// Its identity at that time.
    pub(super) origin: Origin,
}

/// Distinguishes a file from others, and from itself before a change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Origin {
    device: u64,
    inode: u64,
    size: i64,
    modified: (i64, u64),
    mode: u32,
}

/// A planned change.
pub(super) enum Step {
    /// Creates a file.
    Add { path: RelativePath, text: String },
    /// Replaces a file, and perhaps renames it.
    Replace { path: RelativePath, moved: Option<RelativePath>, text: String, origin: Origin },
    /// Removes a file.
    Delete { path: RelativePath },
}

impl Base<'_> {
    /// Reads a text file.
    ///
    /// # Errors
    /// The file does not exist, is not text, or is too large.
    pub(super) fn read(&self, path: &RelativePath) -> Result<Read, String> {
        let fault = |error: Errno| told(path, error);
        let (directories, name) = path.split();
        let parent = self.directory(directories, &mut None).map_err(fault)?;
        // The open does not block, because a command can put a pipe there.
        let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let file = File::from(beneath(&parent, name, flags).map_err(fault)?);
        let stat = fstat(&file).map_err(fault)?;
        regular(path, &stat)?;
        let mut text = String::new();
        let read = (&file).take(FILE_BYTES_MAX + 1).read_to_string(&mut text);
        read.map_err(|error| format!("`{path}` cannot be read as text: {error}"))?;
        if text.len() as u64 > FILE_BYTES_MAX {
            return Err(format!("`{path}` has more than {FILE_BYTES_MAX} bytes, the most that a patch can change"));
        }
        Ok(Read { text, origin: Origin::of(&stat) })
    }

    /// Executes all steps.
    ///
    /// # Errors
    /// The step that failed. Those before it were undone.
    pub(super) fn carry_out(&self, steps: &[Step]) -> Result<(), String> {
        let mut work = Work { base: self, done: Vec::new(), staged: Vec::new() };
        // Everything that takes disk space is written before anything is changed.
        let staged = steps.iter().map(|step| work.stage(step)).collect::<Result<Vec<_>, _>>();
        let outcome = staged.and_then(|staged| {
            steps.iter().zip(staged).try_for_each(|(step, staged)| work.step(step, staged.as_deref()))
        });
        match outcome {
            Ok(()) => {
                work.clear();
                Ok(())
            }
            Err(fault) => Err(work.take_back(fault)),
        }
    }

    /// Opens a directory. If `made` is given, missing ones are created and recorded there.
    fn directory(&self, names: &[String], made: &mut Option<&mut Vec<Done>>) -> Result<OwnedFd, Errno> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let mut at = beneath(self.folder, ".", flags)?;
        for name in names {
            let next = match (beneath(&at, name, flags), made.as_deref_mut()) {
                (Err(Errno::NOENT), Some(made)) => {
                    mkdirat(&at, name.as_str(), Mode::RWXU)?;
                    made.push(Done::Made { parent: at.try_clone().map_err(|_| Errno::MFILE)?, name: name.clone() });
                    let next = beneath(&at, name, flags)?;
                    if let Some(user) = self.user {
                        own(&next, user)?;
                    }
                    next
                }
                (opened, _) => opened?,
            };
            at = next;
        }
        Ok(at)
    }
}

/// Opens something below a directory, without following links.
fn beneath(directory: &OwnedFd, name: &str, flags: OFlags) -> Result<OwnedFd, Errno> {
    let resolve =
        ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS | ResolveFlags::NO_XDEV;
    openat2(directory, name, flags, Mode::empty(), resolve)
}

/// Describes what is wrong with a file.
fn told(path: &RelativePath, error: Errno) -> String {
    match error {
        Errno::NOENT => format!("`{path}` does not exist"),
        Errno::EXIST => format!("`{path}` exists already"),
        Errno::LOOP | Errno::XDEV => format!("`{path}` leads through a link or out of the session's folder"),
        Errno::NOTDIR => format!("`{path}` leads through something that is no directory"),
        Errno::NOSYS => format!("`{path}` cannot be opened safely: the kernel has no openat2 (Linux 5.6)"),
        Errno::INVAL => format!("`{path}`: the file system of the session's folder cannot rename without replacing"),
        error => format!("`{path}`: {error}"),
    }
}

fn regular(path: &RelativePath, stat: &Stat) -> Result<(), String> {
    match FileType::from_raw_mode(stat.st_mode) {
        FileType::RegularFile => Ok(()),
        FileType::Directory => Err(format!("`{path}` is a directory")),
        FileType::Symlink => Err(format!("`{path}` is a link")),
        _ => Err(format!("`{path}` is no regular file")),
    }
}

impl Origin {
    #[allow(clippy::unnecessary_cast, reason = "the types of the fields differ between processors")]
    fn of(stat: &Stat) -> Self {
        Self {
            device: stat.st_dev as u64,
            inode: stat.st_ino as u64,
            size: stat.st_size as i64,
            modified: (stat.st_mtime as i64, stat.st_mtime_nsec as u64),
            mode: stat.st_mode & 0o777,
        }
    }
}

/// The steps that were executed, so that they can be undone.
struct Work<'a> {
    base: &'a Base<'a>,
    done: Vec<Done>,
    /// Names in the staging directory that are removed at the end.
    staged: Vec<String>,
}

/// An executed step.
enum Done {
    /// A directory was created.
    Made { parent: OwnedFd, name: String },
    /// A staged file was moved to its place, which was free.
    Placed { parent: OwnedFd, name: String, staged: String },
    /// A staged file was exchanged with the one in its place.
    Exchanged { parent: OwnedFd, name: String, staged: String },
    /// A file was moved to the staging directory.
    Taken { parent: OwnedFd, name: String, staged: String },
}

impl Work<'_> {
    /// Returns a new name in the staging directory.
    fn name(&mut self) -> String {
        let name = format!("{:016x}{:016x}", fastrand::u64(..), fastrand::u64(..));
        self.staged.push(name.clone());
        name
    }

    /// Writes the new file of a step where commands cannot see it.
    fn stage(&mut self, step: &Step) -> Result<Option<String>, String> {
        let (path, text, mode) = match step {
            Step::Add { path, text } => (path, text, 0o600),
            Step::Replace { path, text, origin, .. } => (path, text, origin.mode),
            Step::Delete { .. } => return Ok(None),
        };
        let name = self.name();
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let written = || -> std::io::Result<()> {
            let file = openat(self.base.staging, name.as_str(), flags, Mode::RUSR | Mode::WUSR)?;
            if let Some(user) = self.base.user {
                own(&file, user)?;
            }
            fchmod(&file, Mode::from_raw_mode(mode))?;
            File::from(file).write_all(text.as_bytes())
        };
        written().map_err(|error| format!("write the new `{path}`: {error}"))?;
        Ok(Some(name))
    }

    /// Executes one step.
    fn step(&mut self, step: &Step, staged: Option<&str>) -> Result<(), String> {
        match (step, staged) {
            (Step::Add { path, .. }, Some(staged)) => self.place(path, staged),
            (Step::Replace { path, moved: None, origin, .. }, Some(staged)) => self.exchange(path, staged, origin),
            (Step::Replace { path, moved: Some(moved), origin, .. }, Some(staged)) => {
                self.take(path, Some(origin))?;
                self.place(moved, staged)
            }
            (Step::Delete { path }, _) => self.take(path, None),
            (Step::Add { path, .. } | Step::Replace { path, .. }, None) => Err(format!("`{path}` was not written")),
        }
    }

    /// Moves a staged file to its place, which must be free.
    fn place(&mut self, path: &RelativePath, staged: &str) -> Result<(), String> {
        let fault = |error: Errno| told(path, error);
        let (directories, name) = path.split();
        let parent = self.base.directory(directories, &mut Some(&mut self.done)).map_err(fault)?;
        renameat_with(self.base.staging, staged, &parent, name, RenameFlags::NOREPLACE).map_err(fault)?;
        self.done.push(Done::Placed { parent, name: name.to_owned(), staged: staged.to_owned() });
        Ok(())
    }

    /// Exchanges a staged file with the one in its place, which must be the one that was read.
    fn exchange(&mut self, path: &RelativePath, staged: &str, origin: &Origin) -> Result<(), String> {
        let fault = |error: Errno| told(path, error);
        let (directories, name) = path.split();
        let parent = self.base.directory(directories, &mut None).map_err(fault)?;
        renameat_with(self.base.staging, staged, &parent, name, RenameFlags::EXCHANGE).map_err(fault)?;
        self.done.push(Done::Exchanged { parent, name: name.to_owned(), staged: staged.to_owned() });
        self.check(path, staged, Some(origin))
    }

    /// Moves a file to the staging directory.
    fn take(&mut self, path: &RelativePath, origin: Option<&Origin>) -> Result<(), String> {
        let fault = |error: Errno| told(path, error);
        let (directories, name) = path.split();
        let parent = self.base.directory(directories, &mut None).map_err(fault)?;
        // This is checked first, so that a refused file does not move at all.
        regular(path, &statat(&parent, name, AtFlags::SYMLINK_NOFOLLOW).map_err(fault)?)?;
        let staged = self.name();
        renameat_with(&parent, name, self.base.staging, staged.as_str(), RenameFlags::NOREPLACE).map_err(fault)?;
        self.done.push(Done::Taken { parent, name: name.to_owned(), staged: staged.clone() });
        self.check(path, &staged, origin)
    }

    /// Checks what is in the staging directory now, because a command may have put something else in the place.
    fn check(&self, path: &RelativePath, staged: &str, origin: Option<&Origin>) -> Result<(), String> {
        let stat = statat(self.base.staging, staged, AtFlags::SYMLINK_NOFOLLOW).map_err(|error| told(path, error))?;
        regular(path, &stat)?;
        if origin.is_some_and(|origin| *origin != Origin::of(&stat)) {
            return Err(format!("`{path}` was changed meanwhile; read it again"));
        }
        Ok(())
    }

    /// Undoes all steps. Returns the fault, and what could not be undone.
    fn take_back(mut self, mut fault: String) -> String {
        let staging = self.base.staging;
        while let Some(done) = self.done.pop() {
            let (name, outcome) = match &done {
                Done::Made { parent, name } => (name, unlinkat(parent, name.as_str(), AtFlags::REMOVEDIR)),
                Done::Placed { parent, name, staged } => {
                    (name, renameat_with(parent, name.as_str(), staging, staged.as_str(), RenameFlags::NOREPLACE))
                }
                Done::Exchanged { parent, name, staged } => {
                    (name, renameat_with(staging, staged.as_str(), parent, name.as_str(), RenameFlags::EXCHANGE))
                }
                Done::Taken { parent, name, staged } => {
                    (name, renameat_with(staging, staged.as_str(), parent, name.as_str(), RenameFlags::NOREPLACE))
                }
            };
            if let Err(error) = outcome {
                fault.push_str(&format!("; `{name}` could not be put back as it was: {error}"));
            }
        }
        self.clear();
        fault
    }

    /// Removes what is left in the staging directory.
    fn clear(self) {
        for name in self.staged {
            // Most of them are in their places by now. If a command exchanged one for a directory, the next start
            // removes that.
            let _ = unlinkat(self.base.staging, name.as_str(), AtFlags::empty());
        }
    }
}
