//! The strategies, a file each.

pub mod manual;
pub mod threshold;
