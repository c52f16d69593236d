//! The health of components, judged once for each version of their objects.

use std::collections::BTreeMap;
use std::sync::Arc;

use parking_lot::Mutex;

use super::kept::Inputs;
use crate::model::Service;

/// The most components whose health is kept. One takes about a kilobyte, so these are 4 MB.
const KEPT: usize = 4_096;

/// Health by run and place. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub(crate) struct Judgements(Arc<Mutex<BTreeMap<String, (Inputs, Service)>>>);

impl Judgements {
    /// Returns what was judged at a place, if it was from these inputs.
    pub(crate) fn find(&self, place: &str, inputs: &Inputs) -> Option<Service> {
        let all = self.0.lock();
        let (known, service) = all.get(place)?;
        known.are(inputs).then(|| service.clone())
    }

    /// Keeps what was judged at a place.
    pub(crate) fn keep(&self, place: String, inputs: Inputs, service: &Service) {
        let all = &mut *self.0.lock();
        if all.len() >= KEPT {
            all.pop_first();
        }
        all.insert(place, (inputs, service.clone()));
    }

    /// Forgets a run: the places that begin with it.
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
