//! The variables of a shell. A subshell shares them until it changes one.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::{Shell, Stop};

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Variable {
    pub(super) value: String,
    pub(super) is_exported: bool,
}

/// The overhead of a variable, and the maximum size of all variables. A subshell that sets a variable has a copy, so a
/// session takes at most `MAX_SUBSHELLS` times that: 32 MiB, and the same for the environment.
const VARIABLE_BYTES: usize = 128;
const MAX_VARIABLE_BYTES: usize = 2 << 20;

impl Shell {
    pub(super) fn set(&mut self, name: &str, value: String) -> Result<(), Stop> {
        let is_exported = self.variables.get(name).is_some_and(|variable| variable.is_exported);
        self.insert(name, value, is_exported)
    }

    /// Sets a variable, unless all of them together become too large.
    pub(super) fn insert(&mut self, name: &str, value: String, is_exported: bool) -> Result<(), Stop> {
        self.variable_bytes += name.len() + value.len() + VARIABLE_BYTES;
        if let Some(old) = self.own_variables().insert(name.to_owned(), Variable { value, is_exported }) {
            self.free_variable(name, &old);
        }
        if self.variable_bytes > MAX_VARIABLE_BYTES { Err(self.unclear(2)) } else { Ok(()) }
    }

    pub(super) fn unset(&mut self, name: &str) {
        if self.variables.contains_key(name)
            && let Some(old) = self.own_variables().remove(name)
        {
            self.free_variable(name, &old);
        }
        if self.functions.contains_key(name) {
            Arc::make_mut(&mut self.functions).remove(name);
        }
    }

    /// Releases the size of a variable.
    fn free_variable(&mut self, name: &str, old: &Variable) {
        self.variable_bytes =
            self.variable_bytes.saturating_sub(name.len() + old.value.len() + VARIABLE_BYTES);
    }

    /// Returns the variables for a change. Those that are shared with another shell are copied.
    pub(super) fn own_variables(&mut self) -> &mut BTreeMap<String, Variable> {
        if Arc::strong_count(&self.variables) > 1 {
            let bytes = self.variables.iter().map(|(name, variable)| name.len() + variable.value.len());
            self.machine.owe(bytes.map(|bytes| bytes + VARIABLE_BYTES).sum());
        }
        Arc::make_mut(&mut self.variables)
    }

    /// Returns the value of a variable. `None` if it is not set.
    pub(super) fn get(&self, name: &str) -> Result<Option<&str>, Stop> {
        match self.variables.get(name) {
            Some(variable) => Ok(Some(&variable.value)),
            None if (self.unknown)(name) => Err(Stop::Unknown),
            None => Ok(None),
        }
    }
}
