//! A native evaluator for the [CUE](https://cuelang.org) configuration language.
//!
//! ```text
//!  text ─► lexer ─► parser ─► resolve: names bound to scopes ─► Source: kept and shared
//!                                                                 │
//!                    data (JSON), host packages ─► Instance ◄─────┘
//!                                                     │  nodes, evaluated on demand
//!                                     JSON, trees with comments, schemas, errors
//! ```
//!
//! # How evaluation works
//!
//! **Nodes.** Every value is a node: a list of conjuncts that are unified. A conjunct is an expression with the
//! environment for its names. `a: b & {x: 1}` gives the node `a` the conjuncts of `b` and a literal. Names in `b`'s
//! literal then refer to fields of `a`, which makes templates work.
//!
//! **On demand.** Evaluating a node takes its conjuncts apart until only fields, types, bounds, atoms and tasks are
//! left. Fields are nodes that are evaluated when they are read. Tasks (comprehensions, computed labels, operators,
//! calls) need other values and run in rounds until none makes progress.
//!
//! **Cycles.** A reference to something that is already part of a node adds nothing, so `a: b, b: a` is `_`. A node
//! whose only conjuncts refer to an enclosing node is infinite, which is an error. Reading a value while it is being
//! evaluated creates a dependency: results computed from it are recomputed if it changes.
//!
//! **Disjunctions.** A node is evaluated once for every combination of alternatives, each time as a separate node.
//! Those with a conflict anywhere inside are dropped, equal ones are merged, and defaults follow the rules of the
//! specification.
//!
//! **Closedness.** Every use of a definition has a number that its conjuncts carry. A field without evidence for each
//! number that closes its struct is rejected.
//!
//! **Not a value.** [`ErrorKind`] distinguishes conflicts, missing values, absent fields, cycles and limits. `x != _|_`
//! is false for all of them, and for values of which only the type is known.
//!
//! # Invariants
//!
//! - Evaluation is a pure function of sources, data and packages: no clock, no I/O, no hash order.
//! - It terminates on every input, within [`Limits`]; the stack is bounded by the limits on nesting and depth.
//! - Sources are immutable and can be shared between threads. An [`Instance`] belongs to one.
//!
//! See [`Instance`] for an example, [`Package`] for host packages, [`Tree`] for comments and [`Schema`] for
//! introspection.

#![deny(missing_docs)]

mod api_value;
mod builtins;
mod data;
mod error;
mod eval;
mod export;
mod host;
mod input;
mod instance;
mod introspect;
mod ir;
mod label;
mod limits;
mod number;
mod openapi;
mod path;
mod predeclared;
mod resolve;
mod resolve_scope;
mod show;
mod similar;
mod source;
mod syntax;
mod tree;
mod value;
mod wide;

pub use api_value::{Presence, Value};
pub use error::{Error, ErrorKind, Errors, Position};
pub use host::{HostFunction, Package, Packages};
pub use input::Input;
pub use instance::{Builder, Instance};
pub use introspect::{Field, Schema};
pub use limits::Limits;
pub use source::Source;
pub use tree::{Attribute, Tree, TreeValue};
pub use value::Kind;

/// Runs the README's examples as doc tests.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
