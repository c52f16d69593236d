//! The fates of running containers. A fate is computed once for each run, and kept while the pod exists.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use parking_lot::Mutex;
use setpoint::{Cached, Client, ClientError};
use setpoint_placement::Resources;

use super::fate::{Ending, Fate, Inputs};
use super::pod::Pod;
use super::program::Entrypoint;
use super::sources::{References, Sources};
use crate::view::{Container, ContainerStatus, PodView};

/// The fates of the containers of one pod.
pub(crate) type OfPod = BTreeMap<Box<str>, Fate>;

/// The fates of all pods. Bounded by the number of containers with a command.
#[derive(Clone, Default)]
pub(crate) struct Fates(Arc<Mutex<BTreeMap<Box<str>, Vec<Known>>>>);

struct Known {
    container: Box<str>,
    restarts: u32,
    fate: Fate,
}

/// A run whose fate is needed.
struct Running<'a> {
    container: &'a Container,
    restarts: u32,
    since: Timestamp,
}

impl Fates {
    /// Returns the fates of the running containers of a pod. Containers without a command are left out.
    pub(crate) async fn of(
        &self,
        pod: &Cached<PodView>,
        client: &Client,
        allocatable: &Resources,
    ) -> Result<OfPod, ClientError> {
        let running: Vec<Running<'_>> = running(pod).collect();
        if running.is_empty() {
            return Ok(OfPod::new());
        }
        if !self.has_all(&pod.meta().uid, &running) {
            // What the API server serves decodes.
            let decoded: Pod = pod.object().decode().unwrap_or_default();
            let references = References::of(&decoded);
            let sources = match references.are_none() {
                true => Sources::default(),
                false => Sources::read(client, &decoded.metadata.namespace, &references).await?,
            };
            let inputs = Inputs { pod: &decoded, sources: &sources, allocatable };
            self.compute(&pod.meta().uid, &running, &inputs);
        }
        Ok(self.known(&pod.meta().uid, &running))
    }

    fn has_all(&self, uid: &str, running: &[Running<'_>]) -> bool {
        let all = self.0.lock();
        let known = all.get(uid).map(Vec::as_slice).unwrap_or_default();
        running.iter().all(|run| known.iter().any(|known| run.is(known)))
    }

    fn compute(&self, uid: &str, running: &[Running<'_>], inputs: &Inputs<'_>) {
        for run in running {
            let spec = inputs.pod.container(&run.container.name);
            let fate = spec.map(|spec| inputs.fate(spec, run.restarts, run.since));
            let fate = fate.unwrap_or(Fate::Unknown { after: Duration::ZERO });
            self.set(uid, &run.container.name, run.restarts, fate);
        }
    }

    fn set(&self, uid: &str, container: &str, restarts: u32, fate: Fate) {
        let mut all = self.0.lock();
        let known = all.entry(uid.into()).or_default();
        known.retain(|known| *known.container != *container);
        known.push(Known { container: container.into(), restarts, fate });
    }

    fn known(&self, uid: &str, running: &[Running<'_>]) -> OfPod {
        let all = self.0.lock();
        let known = all.get(uid).map(Vec::as_slice).unwrap_or_default();
        let current = known.iter().filter(|known| running.iter().any(|run| run.is(known)));
        current.map(|known| (known.container.clone(), known.fate.clone())).collect()
    }

    /// Notes that a user has ended a run.
    pub(crate) fn end(&self, uid: &str, container: &str, restarts: u32, ending: Ending) {
        self.set(uid, container, restarts, Fate::Ends(ending));
    }

    /// Forgets a pod that has ended or was deleted.
    pub(crate) fn forget(&self, uid: &str) {
        let mut all = self.0.lock();
        if !all.is_empty() {
            all.remove(uid);
        }
    }
}

impl Running<'_> {
    fn is(&self, known: &Known) -> bool {
        *known.container == *self.container.name && known.restarts == self.restarts
    }
}

/// Lists the running containers that have a command.
fn running(pod: &PodView) -> impl Iterator<Item = Running<'_>> {
    let (spec, status) = (&pod.spec, &pod.status);
    let of = |containers, statuses| running_of(containers, statuses);
    of(&spec.init_containers, &status.init_container_statuses)
        .chain(of(&spec.containers, &status.container_statuses))
        .chain(of(&spec.ephemeral_containers, &status.ephemeral_container_statuses))
}

fn running_of<'p>(
    containers: &'p [Container],
    statuses: &'p [ContainerStatus],
) -> impl Iterator<Item = Running<'p>> {
    let commands = containers.iter().filter(|container| container.entrypoint == Entrypoint::Command);
    commands.filter_map(|container| {
        let status = statuses.iter().find(|status| status.name == container.name)?;
        let since = status.state.running.as_ref()?.started_at?;
        Some(Running { container, restarts: status.restart_count, since })
    })
}

/// Returns the fates of a pod that refers to no other object.
#[cfg(test)]
pub(crate) fn fates_without_sources(pod: &Cached<PodView>) -> OfPod {
    let (fates, running) = (Fates::default(), running(pod).collect::<Vec<_>>());
    let decoded: Pod = pod.object().decode().expect("a pod");
    let (sources, allocatable) = (Sources::default(), Resources::default());
    fates.compute("u", &running, &Inputs { pod: &decoded, sources: &sources, allocatable: &allocatable });
    fates.known("u", &running)
}
