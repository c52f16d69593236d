//! The cache of parsed templates. Parsing is much more expensive than a lookup, and thousands of applications share a
//! template.

use std::collections::BTreeMap;
use std::sync::Arc;

use parking_lot::Mutex;
use setpoint_cue::{Errors, Packages, Schema, Source};

use crate::workflow::packages;

/// The maximum number of cached templates. A cluster with all built-in definitions, each with a health policy and a
/// custom status, has about 200; 1,000 of 10 kB are 10 MB of text and about ten times that parsed.
const KEPT: usize = 1_000;

/// Templates by text, and the packages they can import. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Sources {
    parsed: Arc<Mutex<BTreeMap<Arc<str>, Source>>>,
    /// The schemas of templates' parameters. At most one per template.
    schemas: Arc<Mutex<BTreeMap<Arc<str>, Arc<Schema>>>>,
    pub(crate) packages: Arc<Packages>,
}

impl Sources {
    pub(crate) fn new() -> Self {
        Self { parsed: Arc::default(), schemas: Arc::default(), packages: Arc::new(packages::all()) }
    }

    /// Returns the schema of a template's parameters, which is computed once.
    pub(crate) fn schema(
        &self,
        text: &str,
        find: impl FnOnce() -> Result<Option<Schema>, String>,
    ) -> Result<Option<Arc<Schema>>, String> {
        if let Some(known) = self.schemas.lock().get(text) {
            return Ok(Some(known.clone()));
        }
        let Some(found) = find()?.map(Arc::new) else { return Ok(None) };
        let mut schemas = self.schemas.lock();
        if schemas.len() >= KEPT {
            schemas.pop_first();
        }
        schemas.insert(text.into(), found.clone());
        Ok(Some(found))
    }

    /// Parses a template, unless it is cached.
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
