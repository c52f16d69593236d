//! Cleanup of a deleted application: deletes the recorded objects.

use super::app::Application;
use super::reconcile::Applications;
use super::revision::application_spec;
use crate::apply::cluster::ClusterError;
use crate::apply::collect::{Collector, Left};
use crate::apply::tracker::Trackers;
use crate::dependency::ordered;
use crate::model::Spec;
use crate::policy::{GarbageCollect, Policies};

impl Applications {
    /// Deletes all objects of an application. Returns the remaining ones.
    pub(super) async fn clean_up(&self, app: &Application, orphans: bool) -> Result<Left, ClusterError> {
        let reference = app.reference();
        let key = reference.key();
        let mut trackers = Trackers::load(&self.trackers, &self.client, reference)?;
        if trackers.all().is_empty() {
            return Ok(Left::default());
        }
        let policy = self.last_garbage_policy(app)?;
        let clusters = self.clusters_of(app).map_err(ClusterError::Refused)?;
        let collector = Collector {
            clusters: &clusters,
            policy: &policy,
            app: &key,
            orphans,
            order: deletion_order(&app.spec),
        };
        collector.after_delete(&mut trackers).await
    }

    /// Returns what to keep of a deleted application. A missing or invalid policy might be one that keeps objects, so
    /// the policy of the latest revision applies. Without one, nothing is deleted.
    fn last_garbage_policy(&self, app: &Application) -> Result<GarbageCollect, ClusterError> {
        let current = self.with_external_policies(app);
        current.and_then(|(spec, _)| Policies::garbage_of(&spec.policies)).or_else(|why| {
            let known = self.known_revisions(app)?;
            let recorded = known.latest().and_then(|revision| application_spec(revision).ok());
            let recorded = recorded.and_then(|spec| Policies::garbage_of(&spec.policies).ok());
            recorded.ok_or_else(|| ClusterError::Refused(format!("spec.policies: {why}")))
        })
    }
}

/// Returns components in order, dependents first.
pub(super) fn deletion_order(spec: &Spec) -> Vec<String> {
    let order = ordered(&spec.components, |component| &component.name, |component| &component.depends_on);
    let dependents_first = order.cyclic.iter().chain(order.sorted.iter().rev());
    dependents_first.map(|component| component.name.clone()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::Component;

    #[test]
    fn dependents_are_deleted_first() {
        let component = |name: &str, on: &[&str]| Component {
            name: name.into(),
            depends_on: on.iter().map(|name| (*name).to_owned()).collect(),
            ..Component::default()
        };
        let spec =
            Spec { components: vec![component("db", &[]), component("web", &["db"])], ..Spec::default() };
        assert_eq!(deletion_order(&spec), ["web", "db"]);
    }
}
