//! CEL selectors of devices, compiled and cached.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use parking_lot::Mutex;
use serde::Deserialize;
use setpoint_cel::device::{Device, Selector as Program};

/// Selects devices by a CEL expression. There is no other way yet.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct Selector {
    pub cel: Option<Expression>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct Expression {
    pub expression: String,
}

/// Compiled expressions. Cheap to clone; clones share the cache.
#[derive(Clone, Default)]
pub struct Expressions(Arc<Mutex<BTreeMap<String, Compiled>>>);

/// A compiled expression, or its error.
type Compiled = Arc<Result<Program, String>>;

/// Expressions come from classes, templates and rules and are few. Each has at most 10 KiB of text and takes about ten
/// times that compiled: less than 7 MiB in total.
const MAX_COMPILED: usize = 64;

/// Why a selector could not be evaluated: its index, and the error.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SelectorError {
    pub at: usize,
    /// Whether the expression itself is valid.
    pub is_of_device: bool,
    pub why: String,
}

impl Expressions {
    /// Whether all of these selectors match a device.
    pub fn all_match(
        &self,
        selectors: &[Selector],
        device: &Result<Device, String>,
    ) -> Result<bool, SelectorError> {
        for (at, selector) in selectors.iter().enumerate() {
            let Some(cel) = &selector.cel else { continue };
            let compiled = self.compiled(&cel.expression);
            let program = compiled.as_ref().as_ref();
            let program =
                program.map_err(|why| SelectorError { at, is_of_device: false, why: why.clone() })?;
            let wanted = device.as_ref().map_err(Clone::clone).and_then(|device| program.wants(device));
            if !wanted.map_err(|why| SelectorError { at, is_of_device: true, why })? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    fn compiled(&self, expression: &str) -> Compiled {
        let mut compiled = self.0.lock();
        if let Some(known) = compiled.get(expression) {
            return known.clone();
        }
        if compiled.len() >= MAX_COMPILED {
            compiled.clear();
        }
        let new: Compiled = Arc::new(Program::compile(expression));
        compiled.insert(expression.to_owned(), new.clone());
        new
    }
}

impl fmt::Display for SelectorError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let stage = if self.is_of_device { "runtime" } else { "compile" };
        write!(f, "selector #{}: CEL {stage} error: {}", self.at, self.why)
    }
}
