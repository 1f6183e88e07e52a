//! Tools: who offers them, their calls, and the approvals that a call may need.

mod approval;
mod call;
mod list;
mod offer;

pub use self::{approval::*, call::*, list::*, offer::*};
