//! The built-in strategies, one file each.

pub mod importance;
pub mod manual;
pub mod pipeline;
pub mod sliding_window;
pub mod threshold;
pub mod tool_results;
pub mod truncate;

#[cfg(test)]
mod tests;
