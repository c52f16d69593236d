//! The coordinates of an object.

use std::collections::BTreeSet;
use std::fmt;

use setpoint::{Kind, Object, OwnerRef};

use super::uid::Uid;

/// The coordinates of an object in an owner reference, and the namespace of the dependent. Two references to one uid
/// may disagree on the rest; then at most one of them is right.
///
/// The field order is the sort order: alternatives are tried kind by kind.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Identity {
    pub(super) kind: Box<str>,
    pub(super) api_version: Box<str>,
    pub(super) namespace: Option<Box<str>>,
    pub(super) name: Box<str>,
    pub(super) uid: Uid,
}

impl Identity {
    /// Returns the identity of an observed object.
    pub(super) fn of(kind: &Kind, object: &Object) -> Self {
        Self {
            kind: kind.kind().into(),
            api_version: kind.api_version().into(),
            namespace: object.key().namespace().map(Into::into),
            name: object.key().name().into(),
            uid: Uid::from(&*object.meta().uid),
        }
    }

    /// Returns the identity of an owner referenced from `namespace`.
    pub(super) fn of_owner(reference: &OwnerRef, namespace: Option<&str>) -> Self {
        Self {
            kind: reference.kind.clone(),
            api_version: reference.api_version.clone(),
            namespace: namespace.map(Into::into),
            name: reference.name.clone(),
            uid: Uid::from(&*reference.uid),
        }
    }

    /// Whether a reference has these coordinates. References have no namespace.
    pub(super) fn is_named_by(&self, reference: &OwnerRef) -> bool {
        self.uid == Uid::from(&*reference.uid)
            && self.name == reference.name
            && self.kind == reference.kind
            && self.api_version == reference.api_version
    }

    /// Compares a dependent's references to this uid with this identity. With several references both fields can be
    /// true.
    pub(super) fn agreement(&self, dependent: &Object) -> Agreement {
        if self.namespace.is_some() && self.namespace.as_deref() != dependent.key().namespace() {
            return Agreement { agrees: false, disagrees: true };
        }
        let mut agreement = Agreement::default();
        for reference in dependent.meta().owner_references.iter() {
            if Uid::from(&*reference.uid) == self.uid {
                let named = self.is_named_by(reference);
                agreement.agrees |= named;
                agreement.disagrees |= !named;
            }
        }
        agreement
    }

    /// Returns another identity that these dependents give for this uid, after this one was found absent. The next in
    /// order, so that all are tried in turn.
    pub(super) fn alternative<'a>(&self, dependents: impl Iterator<Item = &'a Object>) -> Option<Self> {
        let mut others: BTreeSet<Self> = dependents.flat_map(|dependent| self.others(dependent)).collect();
        others.remove(self);
        others.range(self..).next().or_else(|| others.first()).cloned()
    }

    fn others<'a>(&'a self, dependent: &'a Object) -> impl Iterator<Item = Self> + 'a {
        let namespace = dependent.key().namespace();
        let to_this_uid = move |reference: &&OwnerRef| Uid::from(&*reference.uid) == self.uid;
        dependent.meta().owner_references.iter().filter(to_this_uid).map(move |reference| {
            // The absent one was looked up without a namespace, so its kind is cluster-scoped.
            let same_cluster_kind = self.namespace.is_none()
                && self.kind == reference.kind
                && self.api_version == reference.api_version;
            Self::of_owner(reference, if same_cluster_kind { None } else { namespace })
        })
    }
}

/// Whether any reference agrees with an identity, and whether any disagrees.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Agreement {
    pub(super) agrees: bool,
    pub(super) disagrees: bool,
}

impl fmt::Display for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { kind, api_version, namespace, name, uid } = self;
        let namespace = namespace.as_deref().unwrap_or("");
        write!(f, "[{api_version}/{kind}, namespace: {namespace}, name: {name}, uid: {uid}]")
    }
}

impl fmt::Debug for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}
