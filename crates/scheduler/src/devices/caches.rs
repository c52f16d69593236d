//! Caches of claims, classes and slices, and of compiled CEL expressions.

use setpoint::{Context, Informer, Lister};
use setpoint_device::{Expressions, RuleLister, RuleSources};

use super::view::{Claim, Class, Slice};

/// Reads everything that device allocation depends on. Cheap to clone.
#[derive(Clone)]
pub(crate) struct DeviceCaches {
    pub(crate) claims: Lister<Claim>,
    pub(super) classes: Lister<Class>,
    pub(super) slices: Lister<Slice>,
    pub(super) expressions: Expressions,
    /// Device taint rules. `None` if device taints are disabled.
    pub(super) rules: Option<RuleLister>,
}

/// The informers behind [`DeviceCaches`].
pub(crate) struct DeviceSources {
    pub(crate) claims: Informer,
    classes: Informer,
    slices: Informer,
    /// Only if device taints are enabled.
    rules: Option<RuleSources>,
}

impl DeviceSources {
    pub(crate) fn of(context: &Context, device_taints: bool) -> Self {
        Self {
            claims: context.informers.of::<Claim>(),
            classes: context.informers.of::<Class>(),
            slices: context.informers.of::<Slice>(),
            rules: device_taints.then(|| RuleSources::of(context)),
        }
    }

    pub(crate) fn all(&self) -> impl Iterator<Item = &Informer> {
        std::iter::once(&self.claims).chain(self.unblocking())
    }

    /// The informers whose changes can make any pod with claims schedulable.
    pub(crate) fn unblocking(&self) -> impl Iterator<Item = &Informer> {
        let rules = self.rules.iter().flat_map(RuleSources::all);
        [&self.classes, &self.slices].into_iter().chain(rules)
    }

    pub(crate) fn caches(&self) -> DeviceCaches {
        let expressions = Expressions::default();
        DeviceCaches {
            rules: self.rules.as_ref().map(|rules| rules.lister(expressions.clone())),
            claims: self.claims.lister(),
            classes: self.classes.lister(),
            slices: self.slices.lister(),
            expressions,
        }
    }
}

impl DeviceCaches {
    /// Builds caches from fixed objects, without device taints.
    pub(crate) fn of_objects(
        claims: Vec<setpoint::Object>,
        classes: Vec<setpoint::Object>,
        slices: Vec<setpoint::Object>,
    ) -> Self {
        Self {
            claims: Lister::from_objects(claims),
            classes: Lister::from_objects(classes),
            slices: Lister::from_objects(slices),
            expressions: Expressions::default(),
            rules: None,
        }
    }
}

#[cfg(test)]
impl DeviceCaches {
    /// Enables device taints.
    pub(crate) fn tainted_by(mut self, rules: Vec<setpoint::Object>, classes: Vec<setpoint::Object>) -> Self {
        self.rules = Some(RuleLister::from_objects(rules, classes));
        self
    }
}
