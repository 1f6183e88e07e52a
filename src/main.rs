//! The `reseed` binary.

fn main() {}
