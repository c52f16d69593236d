//! Devices that drivers offer: the expressions that pick them, and what taints them.
//!
//! ```text
//!  selector.rs  expressions that pick devices, and those that were compiled
//!  taint.rs     taints, and who tolerates them                              (pure)
//!  rule.rs      the taints that rules of administrators put on devices
//! ```
//!
//! What always holds: whoever asks gets the same answer, the scheduler that keeps pods off tainted devices and the
//! controller that makes them go.

mod rule;
mod selector;
mod taint;

pub use rule::{Rule, RuleLister, RuleSources, Rules, Target};
pub use selector::{Expressions, Selector, Trouble};
pub use taint::{Taint, Toleration};
