//! Which objects a list or a watch is about.

mod field;
mod label;

pub use field::FieldSelector;
pub(crate) use field::{name_of, namespace_of, requirements as field_requirements, written as field_term};
pub use label::{LabelSelector, Requirement};

use setpoint_store::{Range, Record};

use crate::facts::Facts;
use crate::registry::Served;
use crate::status::Status;

/// A choice among the objects of a kind, as clients write it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Selection {
    pub namespace: Option<String>,
    /// `app=web,tier in (a,b)`.
    pub labels: Option<String>,
    /// `spec.nodeName=n1,status.phase!=Failed`.
    pub fields: Option<String>,
}

/// A [`Selection`] that has been understood.
#[derive(Clone, Debug, Default)]
pub struct Choice {
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

    /// Understands the selectors, or says what is wrong with them.
    pub fn parse(&self, served: &Served) -> Result<Choice, Status> {
        Ok(Choice {
            namespace: self.namespace.clone().filter(|namespace| !namespace.is_empty()),
            labels: LabelSelector::parse(self.labels.as_deref().unwrap_or(""))?,
            fields: FieldSelector::parse(self.fields.as_deref().unwrap_or(""), &served.kind)?,
        })
    }
}

impl Choice {
    /// Whether every object of the namespace is chosen.
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

    /// The part of the store that can hold chosen objects.
    pub fn range(&self, served: &Served) -> Range {
        served.range(self.namespace.as_deref())
    }
}
