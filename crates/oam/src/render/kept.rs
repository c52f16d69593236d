//! The cached rendered components of running workflows: a step runs again whenever an object changes, and usually
//! renders the same.

use std::collections::BTreeMap;
use std::sync::Arc;

use parking_lot::Mutex;
use serde_json::Value;

use super::component::Rendered;
use crate::definition::model::Definition;

/// The maximum size of cached objects, as text. As values they take about four times that: 32 MB. A Deployment is about
/// 1.5 kB, so this is enough for about 5,000 components being deployed.
const KEPT: usize = 8 << 20;

/// Rendered components, by run and placement. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub(crate) struct Renders(Arc<Mutex<State>>);

#[derive(Debug, Default)]
struct State {
    runs: BTreeMap<String, BTreeMap<String, Kept>>,
    bytes: usize,
}

#[derive(Debug)]
struct Kept {
    inputs: Inputs,
    rendered: Arc<Rendered>,
    bytes: usize,
}

/// The inputs for rendering a component or evaluating its health. Definitions are compared by pointer.
#[derive(Clone, Debug)]
pub(crate) struct Inputs {
    /// The digest of the component and of everything else that its templates see.
    pub(crate) digest: String,
    /// The definitions of the component and its traits. Without one of them, nothing is rendered.
    pub(crate) definitions: Vec<Arc<Definition>>,
}

impl Inputs {
    /// Returns whether both have the same result.
    pub(crate) fn are(&self, other: &Self) -> bool {
        let mut definitions = self.definitions.iter().zip(&other.definitions);
        self.digest == other.digest
            && self.definitions.len() == other.definitions.len()
            && definitions.all(|(one, other)| Arc::ptr_eq(one, other))
    }
}

impl Renders {
    /// Returns the cached result of these inputs at a placement.
    pub(crate) fn find(&self, run: &str, place: &str, inputs: &Inputs) -> Option<Arc<Rendered>> {
        let state = self.0.lock();
        let kept = state.runs.get(run)?.get(place)?;
        kept.inputs.are(inputs).then(|| kept.rendered.clone())
    }

    /// Caches the result at a placement, replacing its previous one. Others are evicted if necessary.
    pub(crate) fn keep(&self, run: &str, place: String, inputs: Inputs, rendered: &Arc<Rendered>) {
        let bytes = size(rendered);
        let kept = Kept { inputs, rendered: rendered.clone(), bytes };
        let state = &mut *self.0.lock();
        let replaced = state.runs.entry(run.to_owned()).or_default().insert(place, kept);
        state.bytes += bytes;
        state.bytes -= replaced.map_or(0, |replaced| replaced.bytes);
        while state.bytes > KEPT {
            let Some((_, places)) = state.runs.pop_first() else { return };
            state.bytes -= total(&places);
        }
    }

    /// Removes a run.
    pub(crate) fn forget(&self, run: &str) {
        let state = &mut *self.0.lock();
        if let Some(places) = state.runs.remove(run) {
            state.bytes -= total(&places);
        }
    }
}

fn total(places: &BTreeMap<String, Kept>) -> usize {
    places.values().map(|kept| kept.bytes).sum()
}

/// Returns the approximate size of rendered objects as text.
fn size(rendered: &Rendered) -> usize {
    let workload = rendered.workload.iter().chain(&rendered.output);
    let others = rendered.others.iter().map(|other| &other.object);
    workload.chain(others).map(text_size).sum()
}

fn text_size(value: &Value) -> usize {
    match value {
        Value::String(text) => text.len() + 2,
        Value::Array(items) => items.iter().map(|item| text_size(item) + 1).sum::<usize>() + 2,
        Value::Object(fields) => {
            fields.iter().map(|(name, value)| name.len() + text_size(value) + 4).sum::<usize>() + 2
        }
        _ => 8,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn inputs(digest: &str, definitions: &[&Arc<Definition>]) -> Inputs {
        let definitions = definitions.iter().map(|one| Arc::clone(one)).collect();
        Inputs { digest: digest.to_owned(), definitions }
    }

    fn rendered(text: usize) -> Arc<Rendered> {
        Arc::new(Rendered { output: Some(json!("x".repeat(text))), ..Rendered::default() })
    }

    #[test]
    fn what_is_rendered_from_other_inputs_is_not_found() {
        let (renders, one, other) = (Renders::default(), Arc::default(), Arc::default());
        renders.keep("a", "here".into(), inputs("1", &[&one]), &rendered(1));
        let is_found = |run: &str, place: &str, digest: &str, definitions: &[&Arc<Definition>]| {
            renders.find(run, place, &inputs(digest, definitions)).is_some()
        };
        assert!(is_found("a", "here", "1", &[&one]));
        assert!(!is_found("b", "here", "1", &[&one]) && !is_found("a", "there", "1", &[&one]));
        assert!(!is_found("a", "here", "2", &[&one]) && !is_found("a", "here", "1", &[&other]));
        assert!(!is_found("a", "here", "1", &[&one, &other]));
        renders.forget("a");
        assert!(!is_found("a", "here", "1", &[&one]));
    }

    #[test]
    fn what_is_kept_is_bounded() {
        let renders = Renders::default();
        for run in 0..40 {
            for _ in 0..2 {
                renders.keep(&run.to_string(), "here".into(), inputs("1", &[]), &rendered(1 << 20));
            }
            assert!(renders.0.lock().bytes <= KEPT);
        }
        assert!(renders.0.lock().runs.len() >= 7);
        renders.keep("huge", "here".into(), inputs("1", &[]), &rendered(KEPT));
        assert_eq!(renders.0.lock().bytes, 0);
    }
}
