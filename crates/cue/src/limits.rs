//! Limits of parsing and evaluation, and the budget that enforces them.
//!
//! Every loop and every recursion of the evaluator charges the budget, so that evaluation terminates on any input.
//! Limits are counts and not times: the same source reaches the same limit on every machine.

use crate::error::{Error, ErrorKind};

/// The limits of one evaluation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// The maximum size of a source, in bytes.
    pub source_bytes: usize,
    /// The maximum nesting of brackets, braces and field chains in a source.
    pub nesting: usize,
    /// The maximum number of steps: one for each unification, each followed reference, each iteration.
    pub steps: u64,
    /// The maximum nesting of evaluations: a value that needs a value that needs a value.
    pub depth: usize,
    /// The maximum number of values (nodes).
    pub nodes: usize,
    /// The maximum total size of created strings, in bytes.
    pub string_bytes: usize,
    /// The maximum number of tried alternatives of a single disjunction.
    pub disjuncts: usize,
}

impl Default for Limits {
    /// Ample for templates: the largest built-in definitions of KubeVela take about 6,000 steps. With these limits an
    /// evaluation ends within seconds and holds at most a few hundred MB: 150,000 nodes of about a kilobyte, a step
    /// adding at most one conjunct of 150 bytes to them, and 32 MB of strings.
    fn default() -> Self {
        Self {
            source_bytes: 2 << 20,
            nesting: 100,
            steps: 1_500_000,
            depth: 100,
            nodes: 150_000,
            string_bytes: 32 << 20,
            disjuncts: 2_000,
        }
    }
}

/// The usage of an evaluation so far.
#[derive(Debug)]
pub(crate) struct Budget {
    limits: Limits,
    steps: u64,
    strings: usize,
    depth: usize,
}

impl Budget {
    pub(crate) fn new(limits: Limits) -> Self {
        Self { limits, steps: 0, strings: 0, depth: 0 }
    }

    pub(crate) fn limits(&self) -> &Limits {
        &self.limits
    }

    pub(crate) fn steps(&self) -> u64 {
        self.steps
    }

    /// Charges steps.
    pub(crate) fn charge(&mut self, steps: usize) -> Result<(), Error> {
        self.steps = self.steps.saturating_add(steps as u64);
        if self.steps > self.limits.steps {
            return Err(exceeded("steps", self.limits.steps));
        }
        Ok(())
    }

    /// Charges a string that is created.
    pub(crate) fn text(&mut self, bytes: usize) -> Result<(), Error> {
        self.strings = self.strings.saturating_add(bytes);
        if self.strings > self.limits.string_bytes {
            return Err(exceeded("bytes in strings", self.limits.string_bytes as u64));
        }
        self.charge(1 + bytes / 64)
    }

    /// Checks a count of nodes.
    pub(crate) fn nodes(&self, nodes: usize) -> Result<(), Error> {
        if nodes > self.limits.nodes {
            return Err(exceeded("values", self.limits.nodes as u64));
        }
        Ok(())
    }

    /// Enters one more level of evaluation. Every success is followed by [`Budget::leave`].
    pub(crate) fn enter(&mut self) -> Result<(), Error> {
        if self.depth >= self.limits.depth {
            return Err(exceeded("nested evaluations", self.limits.depth as u64));
        }
        self.depth += 1;
        Ok(())
    }

    pub(crate) fn leave(&mut self) {
        self.depth -= 1;
    }
}

fn exceeded(what: &str, limit: u64) -> Error {
    Error::new(ErrorKind::Limit, format!("evaluation was stopped: more than {limit} {what}"))
        .hint("look for endless recursion or disjunctions that multiply")
}
