//! The `reseed` binary.

use clap::Parser as _;
use reseed::internals;
use std::process::ExitCode;

/// Many small objects live as long as their connection; mimalloc keeps them closer together than the system allocator
/// does.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    internals::run(internals::Cli::parse())
}
