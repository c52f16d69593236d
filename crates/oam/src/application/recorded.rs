//! The decoded contents of revisions. Thousands of revisions record the same definitions, which are shared.

use std::collections::BTreeMap;
use std::sync::Arc;

use parking_lot::Mutex;
use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Map, Value};
use setpoint::Cached;

use super::revision::Revision;
use crate::definition::model::{ByType, Definition};
use crate::render::component::Definitions;

/// The maximum number of cached revisions: enough for the applications being deployed. One takes about a kilobyte, a
/// name and a pointer for each of its definitions, so 4 MB in total.
const KEPT: usize = 4_096;

/// The maximum number of cached definitions. One takes about 20 kB, twice its text, so 20 MB in total. A cluster with
/// all built-in ones has 90.
const SHARED: usize = 1_000;

/// The part of a revision that every reconcile needs.
#[derive(Clone, Debug, Default)]
pub(crate) struct Contents {
    pub(crate) definitions: Definitions,
    /// The objects that components copy, by component.
    pub(crate) referred: Map<String, Value>,
}

/// The contents of revisions. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub(crate) struct RevisionContents(Arc<Mutex<State>>);

#[derive(Debug, Default)]
struct State {
    /// By uid and generation of the revision.
    contents: BTreeMap<(Box<str>, i64), Arc<Contents>>,
    /// By their text.
    definitions: BTreeMap<Box<str>, Arc<Definition>>,
}

/// The definitions in a revision, and the objects that components copy.
#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Recorded {
    component_definitions: BTreeMap<String, Box<RawValue>>,
    trait_definitions: BTreeMap<String, Box<RawValue>>,
    policy_definitions: BTreeMap<String, Box<RawValue>>,
    workflow_step_definitions: BTreeMap<String, Box<RawValue>>,
    referred_objects: Vec<Value>,
    /// The number of objects that each component copies, sorted by component name.
    referred_by: BTreeMap<String, usize>,
}

impl RevisionContents {
    /// Returns the contents of a revision.
    pub(crate) fn of(&self, revision: &Cached<Revision>) -> Result<Arc<Contents>, String> {
        let meta = revision.meta();
        let key = (meta.uid.clone(), meta.generation);
        if let Some(known) = self.0.lock().contents.get(&key) {
            return Ok(known.clone());
        }
        let found = Arc::new(self.read(revision)?);
        let contents = &mut self.0.lock().contents;
        if contents.len() >= KEPT {
            contents.pop_first();
        }
        contents.insert(key, found.clone());
        Ok(found)
    }

    fn read(&self, revision: &Cached<Revision>) -> Result<Contents, String> {
        let recorded: Recorded = super::revision::recorded(revision)?;
        let shared = |all| self.shared(all).map_err(|why| format!("revision {}: {why}", revision.name()));
        let definitions = Definitions {
            components: shared(recorded.component_definitions)?,
            traits: shared(recorded.trait_definitions)?,
            policies: shared(recorded.policy_definitions)?,
            steps: shared(recorded.workflow_step_definitions)?,
        };
        let mut objects = recorded.referred_objects.into_iter();
        let of_component = |(name, count): (String, usize)| (name, objects.by_ref().take(count).collect());
        let referred = recorded.referred_by.into_iter().map(of_component).collect();
        Ok(Contents { definitions, referred })
    }

    fn shared(&self, all: BTreeMap<String, Box<RawValue>>) -> Result<ByType, serde_json::Error> {
        all.into_iter().map(|(name, text)| Ok((name, self.definition(&text)?))).collect()
    }

    /// Returns the shared definition with this text.
    fn definition(&self, text: &RawValue) -> Result<Arc<Definition>, serde_json::Error> {
        let known = &mut self.0.lock().definitions;
        if let Some(known) = known.get(text.get()) {
            return Ok(known.clone());
        }
        let definition = Arc::new(Definition::parse(text.get())?);
        if known.len() >= SHARED {
            known.pop_first();
        }
        known.insert(text.get().into(), definition.clone());
        Ok(definition)
    }
}
