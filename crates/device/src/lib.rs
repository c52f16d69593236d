//! Devices of dynamic resource allocation: selector expressions and taints.
//!
//! ```text
//!  selector.rs  CEL selectors, compiled and cached
//!  taint.rs     taints and tolerations                        (pure)
//!  rule.rs      taints set by DeviceTaintRules
//! ```
//!
//! Invariant: the scheduler, which keeps pods off tainted devices, and the eviction controller get the same results.

mod rule;
mod selector;
mod taint;

pub use rule::{Rule, RuleLister, RuleSources, Rules, Target};
pub use selector::{Expressions, Selector, SelectorError};
pub use taint::{Taint, Toleration};
