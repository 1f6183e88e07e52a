//! `…_FILE`: a secret setting in a separate file, which is how containers and service managers provide secrets.

use super::{declare::Declared, declared};
use std::{
    collections::BTreeMap,
    fs::{self, File},
    io::{self, Read as _},
    path::{Path, PathBuf},
};

/// Maximum bytes of a file. A list of a thousand tokens takes half of it.
const FILE_BYTES_MAX: u64 = 128 * 1024;

/// The permissions of everyone except a file's owner.
#[cfg(unix)]
const OTHERS: u32 = 0o077;

/// Returns the variable that names a file with a setting's value; `None` for settings without a secret.
pub(super) fn variable_of(setting: &Declared) -> Option<String> {
    // The address of a database may contain a password.
    let holds_secret = setting.secret || setting.variable == "DATABASE_URL";
    holds_secret.then(|| format!("{}_FILE", setting.variable))
}

/// Replaces each variable that names a file by the setting that the file contains. Relative paths start at
/// WORKING_DIRECTORY. Returns warnings about files that others may read.
pub(super) fn read(variables: &mut BTreeMap<String, String>, faults: &mut Vec<String>) -> Vec<String> {
    let mut warnings = Vec::new();
    for setting in declared() {
        let Some(named_by) = variable_of(&setting) else { continue };
        let Some(file) = variables.remove(&named_by).filter(|file| !file.trim().is_empty()) else { continue };
        let setting = setting.variable;
        if variables.get(&setting).is_some_and(|value| !value.trim().is_empty()) {
            faults.push(format!("{setting} and {named_by} are both set; set one of them"));
            continue;
        }
        let directory = variables.get("WORKING_DIRECTORY").map(|text| text.trim()).filter(|text| !text.is_empty());
        let path: PathBuf = Path::new(directory.unwrap_or(".")).join(file.trim()).components().collect();
        match contents(&path) {
            Ok(value) => {
                variables.insert(setting, value);
                warnings.extend(exposed(&path, &named_by));
            }
            // The path is not shown, because it may be the secret itself, put there by mistake.
            Err(why) => faults.push(format!("{named_by} names a file that {why}")),
        }
    }
    warnings
}

/// Reads a value without its final line break.
fn contents(path: &Path) -> Result<String, String> {
    let mut text = Vec::new();
    let read = File::open(path).and_then(|file| file.take(FILE_BYTES_MAX + 1).read_to_end(&mut text));
    read.map_err(|error: io::Error| format!("cannot be read: {error}"))?;
    if text.len() as u64 > FILE_BYTES_MAX {
        return Err(format!("has more than {FILE_BYTES_MAX} bytes"));
    }
    let text = String::from_utf8(text).map_err(|_| "is not UTF-8".to_owned())?;
    let text = text.strip_suffix('\n').map_or(text.as_str(), |line| line.strip_suffix('\r').unwrap_or(line));
    if text.trim().is_empty() { Err("is blank".to_owned()) } else { Ok(text.to_owned()) }
}

/// Returns a warning if anyone but the owner may read or change a file with secrets.
#[cfg(unix)]
pub(super) fn exposed(path: &Path, what: &str) -> Option<String> {
    use std::os::unix::fs::PermissionsExt as _;
    let mode = fs::metadata(path).ok()?.permissions().mode();
    (mode & OTHERS != 0).then(|| {
        let path = path.display();
        format!(
            "{what}: {path} has secrets, and its mode {:03o} is not for its owner alone; chmod 600 it",
            mode & 0o777
        )
    })
}

/// Returns nothing, because other systems have other permissions.
#[cfg(not(unix))]
pub(super) fn exposed(_: &Path, _: &str) -> Option<String> {
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{Error, Settings};
    use secrecy::ExposeSecret as _;
    use std::os::unix::fs::PermissionsExt as _;

    /// Writes a file that only its owner may read.
    fn write(folder: &Path, name: &str, text: &[u8]) -> PathBuf {
        let path = folder.join(name);
        fs::write(&path, text).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
        path
    }

    fn settings(folder: &Path, variables: &[(&str, &str)]) -> Result<Settings, Vec<String>> {
        let folder = ("WORKING_DIRECTORY", folder.to_str().unwrap());
        Settings::from_iter(variables.iter().copied().chain([folder])).map_err(|Error(faults)| faults)
    }

    #[test]
    fn every_secret_may_be_in_a_file() {
        let folder = tempfile::tempdir().unwrap();
        let good = |variable: &str| match variable {
            "OPENAI_API_KEY" | "ANTHROPIC_API_KEY" => "key-with-16-characters",
            "OPENAI_BASE_URL" | "ANTHROPIC_BASE_URL" | "OTEL_EXPORTER_OTLP_ENDPOINT" => "https://models.example/v1",
            "DATABASE_URL" => "sqlite:///var/lib/reseed.db",
            "NODE_TOKEN" | "SEAL_KEY" => "a-secret-of-the-servers-with-40-characters",
            _ => "ann:a-token-of-16-chars",
        };
        let secrets: Vec<Declared> = declared().into_iter().filter(|one| variable_of(one).is_some()).collect();
        assert!(secrets.len() >= 6, "{secrets:?}");
        for secret in secrets {
            let variable = secret.variable;
            let value = good(&variable);
            write(folder.path(), "secret", format!("{value}\r\n").as_bytes());
            let of_file = settings(folder.path(), &[(&format!("{variable}_FILE"), " secret ")]).unwrap();
            let direct = settings(folder.path(), &[(&variable, value)]).unwrap();
            assert_eq!(format!("{of_file:?}"), format!("{direct:?}"), "{variable}");
        }
        write(folder.path(), "secret", b"key-with-16-characters\n");
        let of_file = settings(folder.path(), &[("OPENAI_API_KEY_FILE", "secret")]).unwrap();
        assert_eq!(of_file.model.openai_api_key.unwrap().expose_secret(), "key-with-16-characters");
        assert_eq!(of_file.warnings, Vec::<String>::new());
    }

    #[test]
    fn a_file_that_cannot_be_used_is_named_and_not_shown() {
        let folder = tempfile::tempdir().unwrap();
        let large = vec![b'x'; FILE_BYTES_MAX as usize + 1];
        let texts: [(&str, &[u8]); 5] = [
            ("good", b"ann:hunter2hunter2hunter2"),
            ("wrong", b"ann hunter2"),
            ("blank", b" \n"),
            ("binary", b"ann:\xff"),
            ("large", &large),
        ];
        for (name, text) in texts {
            write(folder.path(), name, text);
        }
        let unread = " names a file that cannot be read: ";
        let table: [(&[(&str, &str)], &str); 10] = [
            (&[("AUTH_TOKENS_FILE", "none")], unread),
            (&[("DATABASE_URL_FILE", "postgres://u:hunter2@h/db")], unread),
            (&[("OPENAI_API_KEY_FILE", "sk-hunter2hunter2hunter2")], unread),
            (&[("AUTH_TOKENS_FILE", "ann:hunter2")], unread),
            (&[("AUTH_TOKENS_FILE", ".")], unread),
            (&[("AUTH_TOKENS_FILE", "blank")], "that is blank"),
            (&[("AUTH_TOKENS_FILE", "binary")], "that is not UTF-8"),
            (&[("AUTH_TOKENS_FILE", "large")], "that has more than 131072 bytes"),
            (&[("AUTH_TOKENS_FILE", "wrong")], "AUTH_TOKENS is set to a value that is not allowed"),
            (
                &[("AUTH_TOKENS_FILE", "good"), ("AUTH_TOKENS", "bob:hunter2")],
                "AUTH_TOKENS and AUTH_TOKENS_FILE are both set; set one of them",
            ),
        ];
        for (variables, expected) in table {
            let faults = settings(folder.path(), variables).map(|_| ()).unwrap_err();
            assert!(faults.len() == 1 && faults[0].contains(expected), "{variables:?}: {faults:?}");
            assert!(!faults[0].contains("hunter2"), "{faults:?}");
        }
        let one = settings(folder.path(), &[("AUTH_TOKENS_FILE", "good"), ("AUTH_TOKENS", " ")]).unwrap();
        assert_eq!(one.auth.auth_tokens.len(), 1, "a blank variable counts as unset");
    }

    #[test]
    fn a_file_that_others_can_read_is_warned_about() {
        let folder = tempfile::tempdir().unwrap();
        let secret = write(folder.path(), "secret", b"ann:a-token-of-16-chars");
        let hooks = write(folder.path(), "hooks.json", b"{}");
        let variables = [("AUTH_TOKENS_FILE", "secret"), ("HOOKS_FILE", "hooks.json")];
        for (mode, expected) in [(0o600, 0), (0o400, 0), (0o640, 2), (0o604, 2), (0o620, 2)] {
            for file in [&secret, &hooks] {
                fs::set_permissions(file, fs::Permissions::from_mode(mode)).unwrap();
            }
            let warnings = settings(folder.path(), &variables).unwrap().warnings;
            assert_eq!(warnings.len(), expected, "{mode:o}: {warnings:?}");
            assert!(warnings.iter().all(|warning| warning.contains(&format!("its mode {mode:03o}"))), "{warnings:?}");
        }
    }
}
