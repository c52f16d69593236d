//! Data that several instances share.

use std::sync::Arc;

use serde_json::Value as Json;

use crate::data::Data;
use crate::error::Errors;

/// Converted data, ready for evaluation. Cheap to clone: filling it into an instance copies nothing.
///
/// ```
/// use serde_json::json;
/// use setpoint_cue::{Input, Instance, Source};
///
/// let context = Input::new(&json!({"name": "web", "labels": {"team": "shop"}}))?;
/// let source = Source::parse("a.cue", "out: \"\\(context.name) of \\(context.labels.team): \\(context.size)\"")?;
/// let sized = context.with("size", &Input::new(&json!(3))?);
/// let instance = Instance::builder().source(&source).input("context", &sized).build()?;
/// assert_eq!(instance.lookup("out")?.to_json()?, "web of shop: 3");
/// # Ok::<(), setpoint_cue::Errors>(())
/// ```
#[derive(Clone, Debug)]
pub struct Input(pub(crate) Arc<Data>);

impl Input {
    /// Converts JSON. Fails if it is nested too deeply, or has a number that is too large.
    pub fn new(json: &Json) -> Result<Self, Errors> {
        Ok(Self(Arc::new(Data::from_json(json)?)))
    }

    /// Returns a struct with a field replaced. A value that is not a struct becomes one.
    #[must_use]
    pub fn with(&self, name: &str, value: &Self) -> Self {
        let known = match &*self.0 {
            Data::Struct(fields) => fields.as_slice(),
            _ => &[],
        };
        let others = known.iter().filter(|(field, _)| **field != *name).cloned();
        Self(Arc::new(Data::Struct(others.chain([(name.into(), value.0.clone())]).collect())))
    }
}
