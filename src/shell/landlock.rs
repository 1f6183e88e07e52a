//! Landlock: which files a command can open, and which processes it can signal.

use landlock::{
    ABI, Access as _, AccessFs, AccessNet, BitFlags, CompatLevel, Compatible as _, Ruleset, RulesetAttr as _,
    RulesetCreatedAttr as _, RulesetError, RulesetStatus, Scope, path_beneath_rules,
};
use std::path::Path;

/// The required version. Truncation is confined since version 3, and signals since version 6. Without the latter,
/// `kill` would reach the server.
const REQUIRED: ABI = ABI::V6;

/// What a command may read and run: programs, libraries, and the files that they need to start. The folders of sessions
/// and the working directory must not be in here, which [`super::shell::Shell::open`] checks. It does not know reseed's
/// other files.
pub(super) const SYSTEM: &[&str] = &[
    "/usr",
    "/bin",
    "/sbin",
    "/lib",
    "/lib32",
    "/lib64",
    "/libx32",
    "/nix/store",
    "/gnu/store",
    "/etc/alternatives",
    "/etc/bash.bashrc",
    "/etc/group",
    "/etc/inputrc",
    "/etc/ld.so.cache",
    "/etc/ld.so.conf",
    "/etc/ld.so.conf.d",
    "/etc/localtime",
    "/etc/magic",
    "/etc/mime.types",
    "/etc/nsswitch.conf",
    "/etc/os-release",
    "/etc/passwd",
    "/etc/perl",
    "/etc/profile",
    "/etc/ssl/certs",
    "/etc/ssl/openssl.cnf",
    "/etc/terminfo",
    "/etc/timezone",
    "/dev/random",
    "/dev/urandom",
];

/// Devices that a command may also write to.
const DEVICES: &[&str] = &["/dev/null", "/dev/zero", "/dev/full"];

/// Confines this process, and everything that it starts, to a folder.
///
/// # Errors
/// The reason why the kernel does not do all of it, as text for the log.
pub(super) fn confine(folder: &Path) -> Result<(), String> {
    let status = restrict(folder).map_err(|error| {
        format!(
            "Landlock cannot be used: {error}. The sandbox needs Linux 6.12 with Landlock switched on \
             (`landlock` in /sys/kernel/security/lsm), and in a container also its seccomp profile must allow it"
        )
    })?;
    if status == RulesetStatus::FullyEnforced { Ok(()) } else { Err(format!("Landlock is only {status:?}")) }
}

fn restrict(folder: &Path) -> Result<RulesetStatus, RulesetError> {
    let all = AccessFs::from_all(REQUIRED);
    let system = AccessFs::ReadFile | AccessFs::ReadDir | AccessFs::Execute;
    let devices: BitFlags<AccessFs> = AccessFs::ReadFile | AccessFs::WriteFile;
    // Device nodes would belong to the machine, not to the folder.
    let own = all & !(AccessFs::MakeChar | AccessFs::MakeBlock | AccessFs::IoctlDev);
    let ruleset = Ruleset::default()
        .set_compatibility(CompatLevel::HardRequirement)
        .handle_access(all)?
        .handle_access(AccessNet::from_all(REQUIRED))?
        .scope(Scope::from_all(REQUIRED))?
        .create()?
        .add_rules(path_beneath_rules(SYSTEM, system))?
        .add_rules(path_beneath_rules(DEVICES, devices))?
        .add_rules(path_beneath_rules([folder], own))?;
    Ok(ruleset.restrict_self()?.ruleset)
}
