//! The cached health of components, evaluated once per version of their objects.

use std::collections::BTreeMap;
use std::sync::Arc;

use parking_lot::Mutex;

use super::kept::Inputs;
use crate::model::Service;

/// The maximum number of cached components. One takes about a kilobyte, so 4 MB in total.
const KEPT: usize = 4_096;

/// Health by run and placement. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub(crate) struct Judgements(Arc<Mutex<BTreeMap<String, (Inputs, Service)>>>);

impl Judgements {
    /// Returns the cached health at a placement, if it has the same inputs.
    pub(crate) fn find(&self, place: &str, inputs: &Inputs) -> Option<Service> {
        let all = self.0.lock();
        let (known, service) = all.get(place)?;
        known.are(inputs).then(|| service.clone())
    }

    /// Caches the health at a placement.
    pub(crate) fn keep(&self, place: String, inputs: Inputs, service: &Service) {
        let all = &mut *self.0.lock();
        if all.len() >= KEPT {
            all.pop_first();
        }
        all.insert(place, (inputs, service.clone()));
    }

    /// Removes a run: all placements that start with it.
    pub(crate) fn forget(&self, run: &str) {
        let all = &mut *self.0.lock();
        let from = all.range(run.to_owned()..).map(|(place, _)| place);
        let gone: Vec<String> = from.take_while(|place| place.starts_with(run)).cloned().collect();
        gone.iter().for_each(|place| drop(all.remove(place)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_same_inputs_give_the_same_health() {
        let (judgements, service) = (Judgements::default(), Service { healthy: true, ..Service::default() });
        let inputs = |digest: &str| Inputs { digest: digest.to_owned(), definitions: Vec::new() };
        judgements.keep("a here".into(), inputs("1"), &service);
        judgements.keep("b here".into(), inputs("1"), &service);
        assert_eq!(judgements.find("a here", &inputs("1")), Some(service));
        assert_eq!(judgements.find("a here", &inputs("2")), None);
        judgements.forget("a");
        assert_eq!(judgements.find("a here", &inputs("1")), None);
        assert!(judgements.find("b here", &inputs("1")).is_some());
    }
}
