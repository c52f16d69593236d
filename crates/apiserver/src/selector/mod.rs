//! Selects the objects of a list or a watch.

mod field;
mod label;

pub use field::FieldSelector;
pub(crate) use field::{name_of, namespace_of, requirements, written as field_term};
pub use label::{LabelSelector, Requirement};

use std::sync::Arc;

use setpoint_store::{Range, Record, Trigger, ValueOf};

use crate::facts::Facts;
use crate::registry::Served;
use crate::status::Status;

/// Records to check before yielding: at half a microsecond each, half a millisecond.
pub(crate) const SLICE: usize = 1024;

/// A selection among a kind's objects, as written by clients.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Selection {
    pub namespace: Option<String>,
    /// `app=web,tier in (a,b)`.
    pub labels: Option<String>,
    /// `spec.nodeName=n1,status.phase!=Failed`.
    pub fields: Option<String>,
}

/// A parsed [`Selection`].
#[derive(Clone, Debug, Default)]
pub struct ParsedSelection {
    pub namespace: Option<String>,
    pub labels: LabelSelector,
    pub fields: FieldSelector,
}

impl Selection {
    pub fn all() -> Self {
        Self::default()
    }

    pub fn in_namespace(namespace: impl Into<String>) -> Self {
        Self { namespace: Some(namespace.into()), ..Self::default() }
    }

    /// Parses the selectors.
    pub fn parse(&self, served: &Served) -> Result<ParsedSelection, Status> {
        Ok(ParsedSelection {
            namespace: self.namespace.clone().filter(|namespace| !namespace.is_empty()),
            labels: LabelSelector::parse(self.labels.as_deref().unwrap_or(""))?,
            fields: FieldSelector::parse(self.fields.as_deref().unwrap_or(""), &served.kind)?,
        })
    }
}

impl ParsedSelection {
    /// Whether every object in the namespace is selected.
    pub fn is_everything(&self) -> bool {
        self.labels.is_everything() && self.fields.is_everything()
    }

    pub fn matches(&self, record: &Record, served: &Served) -> bool {
        if self.is_everything() {
            return true;
        }
        let facts = Facts::of(record, served);
        self.labels.matches(facts) && self.fields.matches(record, facts, served)
    }

    /// Returns the range of the store that can hold selected objects: one name, one namespace, or everything.
    pub fn range(&self, served: &Served) -> Range {
        let namespace = self.namespace.as_deref();
        match self.fields.exact_name() {
            Some(name) if namespace.is_some() || !served.kind.is_namespaced() => {
                served.resource.only(served.key(namespace, name).path)
            }
            _ => served.range(namespace),
        }
    }

    /// Returns what wakes a watch of this selection, if that is less than every change in its range.
    pub(crate) fn trigger(&self, served: &Arc<Served>) -> Option<Trigger> {
        let (name, index, value) = self.fields.trigger(served)?;
        let (served, value) = (served.clone(), value.into());
        let of: ValueOf = Arc::new(move |record| Facts::of(record, &served).field(index));
        Some(Trigger { name, value, of })
    }

    /// Returns the selected records. Yields after every [`SLICE`] of them.
    pub(crate) async fn select_records(
        &self,
        records: Vec<Arc<Record>>,
        served: &Served,
    ) -> Vec<Arc<Record>> {
        if self.is_everything() {
            return records;
        }
        let mut chosen = Vec::new();
        for (at, record) in records.into_iter().enumerate() {
            if at > 0 && at.is_multiple_of(SLICE) {
                tokio::task::yield_now().await;
            }
            if self.matches(&record, served) {
                chosen.push(record);
            }
        }
        chosen
    }
}
