//! Where claims, classes and slices are read from, and the expressions that were compiled.

use std::collections::BTreeMap;
use std::sync::Arc;

use parking_lot::Mutex;
use setpoint::{Context, Informer, Lister};
use setpoint_cel::device::Selector;

use super::view::{Claim, Class, Slice};

/// Reads everything that devices depend on. Cheap to clone.
#[derive(Clone)]
pub(crate) struct DeviceCaches {
    pub(crate) claims: Lister<Claim>,
    pub(super) classes: Lister<Class>,
    pub(super) slices: Lister<Slice>,
    compiled: Arc<Mutex<BTreeMap<String, Compiled>>>,
}

/// An expression, or what is wrong with it.
pub(super) type Compiled = Arc<Result<Selector, String>>;

/// Expressions come from classes and templates and are few. Each is at most 10 KiB of text and some ten times that
/// compiled: together less than 7 MiB.
const MOST_COMPILED: usize = 64;

/// The informers behind them.
pub(crate) struct DeviceSources {
    pub(crate) claims: Informer,
    classes: Informer,
    slices: Informer,
}

impl DeviceSources {
    pub(crate) fn of(context: &Context) -> Self {
        Self {
            claims: context.informers.of::<Claim>(),
            classes: context.informers.of::<Class>(),
            slices: context.informers.of::<Slice>(),
        }
    }

    pub(crate) fn all(&self) -> [&Informer; 3] {
        [&self.claims, &self.classes, &self.slices]
    }

    /// Those whose changes can make any pod with claims fit.
    pub(crate) fn helpful(&self) -> [&Informer; 2] {
        [&self.classes, &self.slices]
    }

    pub(crate) fn caches(&self) -> DeviceCaches {
        DeviceCaches {
            claims: self.claims.lister(),
            classes: self.classes.lister(),
            slices: self.slices.lister(),
            compiled: Arc::default(),
        }
    }
}

impl DeviceCaches {
    pub(super) fn compiled(&self, expression: &str) -> Compiled {
        let mut compiled = self.compiled.lock();
        if let Some(known) = compiled.get(expression) {
            return known.clone();
        }
        if compiled.len() >= MOST_COMPILED {
            compiled.clear();
        }
        let new: Compiled = Arc::new(Selector::compile(expression));
        compiled.insert(expression.to_owned(), new.clone());
        new
    }
}

#[cfg(test)]
impl DeviceCaches {
    /// Nothing but these.
    pub(crate) fn fixed(
        claims: Vec<setpoint::Object>,
        classes: Vec<setpoint::Object>,
        slices: Vec<setpoint::Object>,
    ) -> Self {
        Self {
            claims: Lister::fixed(claims),
            classes: Lister::fixed(classes),
            slices: Lister::fixed(slices),
            compiled: Arc::default(),
        }
    }
}
