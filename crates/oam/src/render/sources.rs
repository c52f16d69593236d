//! Parsed templates. Parsing is much more expensive than looking up, and thousands of applications share a template.

use std::collections::BTreeMap;
use std::sync::Arc;

use parking_lot::Mutex;
use setpoint_cue::{Errors, Packages, Source};

use crate::workflow::packages;

/// The most templates that are kept. A cluster with all built-in definitions, each with a health policy and a custom
/// status, has about 200; 1,000 of 10 kB are 10 MB of text and about ten times that parsed.
const KEPT: usize = 1_000;

/// Templates by text, and the packages they can import. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Sources {
    parsed: Arc<Mutex<BTreeMap<Arc<str>, Source>>>,
    pub(crate) packages: Arc<Packages>,
}

impl Sources {
    pub(crate) fn new() -> Self {
        Self { parsed: Arc::default(), packages: Arc::new(packages::all()) }
    }

    /// Parses a template, unless that has been done before.
    pub(crate) fn parse(&self, name: &str, text: &str) -> Result<Source, Errors> {
        if let Some(source) = self.parsed.lock().get(text) {
            return Ok(source.clone());
        }
        let source = Source::parse(name, text)?;
        let mut parsed = self.parsed.lock();
        if parsed.len() >= KEPT {
            parsed.pop_first();
        }
        parsed.insert(text.into(), source.clone());
        Ok(source)
    }
}
