//! `apply_patch`: changes several files by one text, all of them or none.
//!
//! Everything is read and computed first ([`parse`], [`lines`]). The new files are then written where no command sees
//! them, and renamed into their places ([`files`]). If a step fails, those before it are undone.

mod files;
mod lines;
mod parse;
mod path;

pub(crate) use files::Base;

use files::{Read, Step};
use parse::Change;
use path::RelativePath;
use std::{
    collections::BTreeSet,
    sync::{Arc, Weak},
};

/// Maximum bytes of a patch.
const PATCH_BYTES_MAX: usize = 1024 * 1024;

/// Maximum number of files in one patch, because each is an open directory until the end.
const FILES_MAX: usize = 100;

/// The tool's description for the model.
pub(crate) const DESCRIPTION: &str = "\
Changes files in this session's folder, all of them or none. Paths are relative to the folder. The patch has this form:

*** Begin Patch
*** Add File: path/new.txt
+every line of the new file
*** Update File: path/old.py
*** Move to: path/renamed.py
@@ def greet():
 a line that stays
-a line that goes
+a line that comes
*** Delete File: path/gone.txt
*** End Patch

`Move to` is optional. Each `@@` begins a place to change, and may name a line above it, such as the head of a \
function. Give about three lines that stay before and after a change, so that its place is clear. `*** End of File` \
after such lines says that they are the last of the file.";

/// States that a call is still wanted, as long as it exists.
pub(crate) struct Wanted(#[expect(dead_code, reason = "it is there to be dropped")] Arc<()>);

/// Reports whether a call is still wanted.
pub(crate) struct IsWanted(Weak<()>);

/// Creates both ends.
pub(crate) fn wanted() -> (Wanted, IsWanted) {
    let wanted = Arc::new(());
    let is_wanted = IsWanted(Arc::downgrade(&wanted));
    (Wanted(wanted), is_wanted)
}

impl IsWanted {
    /// Succeeds while the call is wanted.
    ///
    /// # Errors
    /// It was cancelled.
    pub(crate) fn check(&self) -> Result<(), String> {
        if self.0.strong_count() > 0 { Ok(()) } else { Err("the call was cancelled".to_owned()) }
    }
}

/// Applies a patch and returns what was changed. Blocks.
///
/// # Errors
/// What is wrong with the patch, or with a file. Nothing is changed then.
pub(crate) fn apply(
    base: &Base<'_>,
    workdir: Option<&str>,
    text: &str,
    is_wanted: &IsWanted,
) -> Result<String, String> {
    if text.len() > PATCH_BYTES_MAX {
        return Err(format!("the patch has {} bytes; at most {PATCH_BYTES_MAX} are allowed", text.len()));
    }
    let changes = parse::parse(text)?;
    if changes.len() > FILES_MAX {
        return Err(format!("the patch changes {} files; at most {FILES_MAX} are allowed", changes.len()));
    }
    let mut seen = BTreeSet::new();
    let mut path = |text: &str| {
        let path = RelativePath::parse(workdir, text)?;
        if seen.insert(path.to_string()) { Ok(path) } else { Err(format!("`{path}` is named twice")) }
    };
    let (mut steps, mut told) = (Vec::new(), String::from("Done:\n"));
    for change in changes {
        is_wanted.check()?;
        match change {
            Change::Add { path: named, text } => {
                let path = path(&named)?;
                told.push_str(&format!("A {path}\n"));
                steps.push(Step::Add { path, text });
            }
            Change::Delete { path: named } => {
                let path = path(&named)?;
                told.push_str(&format!("D {path}\n"));
                steps.push(Step::Delete { path });
            }
            Change::Update { path: named, moved, hunks } => {
                let (path, moved) = (path(&named)?, moved.map(|moved| path(&moved)).transpose()?);
                let Read { text, origin } = base.read(&path)?;
                let text = lines::change(&text, &hunks).map_err(|fault| format!("`{path}`: {fault}"))?;
                match &moved {
                    Some(moved) => told.push_str(&format!("M {path} -> {moved}\n")),
                    None => told.push_str(&format!("M {path}\n")),
                }
                steps.push(Step::Replace { path, moved, text, origin });
            }
        }
    }
    is_wanted.check()?;
    base.carry_out(&steps)?;
    Ok(told)
}

#[cfg(test)]
mod tests {
    use super::{Base, apply, wanted};
    use std::{fs, os::fd::OwnedFd, path::Path};

    fn open(path: &Path) -> OwnedFd {
        fs::create_dir(path).expect("made");
        fs::File::open(path).expect("opened").into()
    }

    #[test]
    fn a_patch_that_nobody_waits_for_is_not_begun() {
        let directory = tempfile::tempdir().expect("a directory");
        let (folder, staging) = (directory.path().join("folder"), directory.path().join("staging"));
        let base = Base { folder: &open(&folder), staging: &open(&staging), user: None };
        let text = "*** Begin Patch\n*** Add File: a\n+x\n*** End Patch";
        let (one, is_wanted) = wanted();
        drop(one);
        assert_eq!(apply(&base, None, text, &is_wanted), Err("the call was cancelled".to_owned()));
        assert!(!folder.join("a").exists());

        let (_one, is_wanted) = wanted();
        assert_eq!(apply(&base, None, text, &is_wanted), Ok("Done:\nA a\n".to_owned()));
        assert_eq!(fs::read_to_string(folder.join("a")).expect("written"), "x\n");
        assert_eq!(fs::read_dir(&staging).expect("listed").count(), 0);
    }
}
