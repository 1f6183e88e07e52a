//! The program `reseed-shell`: see `lib.rs`.

use std::process::ExitCode;

#[cfg(target_os = "linux")]
fn main() -> ExitCode {
    reseed_shell::main()
}

/// Only Linux can open files and end processes as the tools need it.
#[cfg(not(target_os = "linux"))]
fn main() -> ExitCode {
    eprintln!("reseed-shell: this system is not supported; Linux is");
    ExitCode::FAILURE
}
