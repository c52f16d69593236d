//! One pass over an application: parse, revision, policies, workflow, health, state, garbage.

use std::collections::BTreeSet;
use std::time::Duration;

use jiff::Timestamp;
use serde_json::{Map, Value, json};
use setpoint::{Cached, Outcome};

use super::app::Application;
use super::clean_up::deletion_order;
use super::reconcile::Applications;
use super::referred;
use super::resolve::Resolved;
use super::revision::{self, Content, Revision, Revisions};
use super::status::{STAGES, phase, phase_of};
use crate::apply::cluster::ClusterError;
use crate::apply::collect::Collector;
use crate::apply::dispatch::Dispatcher;
use crate::apply::tracker::{Tracker, Trackers};
use crate::clusters::Clusters;
use crate::model::{Status, WorkflowStatus};
use crate::names;
use crate::policy::Policies;
use crate::render::context::AppContext;
use crate::session::Session;
use crate::workflow::engine::{Engine, INITIALIZING};
use crate::workflow::steps::{self, Plan};
use crate::workflow::variables::Variables;

/// The resync period of an application, as in KubeVela.
const RESYNC: Duration = Duration::from_secs(300);
/// The resync period after the workflow has ended, if all objects are watched. Of 12,000 applications, three are
/// reconciled per second.
const SETTLED: Duration = Duration::from_secs(3600);
/// The requeue delay if a user has to fix something: a missing definition, a missing cluster.
const REPAIR: Duration = Duration::from_secs(10);
/// The requeue delay while objects are being deleted. Their deletion also triggers a reconcile.
const COLLECT: Duration = Duration::from_secs(5);
/// How long dropped objects are kept after the workflow has ended, in case the edit is reverted.
const RETENTION: Duration = Duration::from_secs(2);

impl Applications {
    /// Makes one pass over an application. The status says how far it got.
    pub(super) async fn progress(
        &self,
        app: &Application,
        status: &mut Status,
    ) -> Result<Outcome, ClusterError> {
        let now = self.clock.now();
        status.observed_generation = app.metadata.generation;
        let known = self.known_revisions(app)?;
        let parsed = self.resolve(app).and_then(|resolved| Ok((resolved, self.clusters_of(app)?)));
        let (resolved, clusters) = match parsed {
            Ok(parsed) => parsed,
            Err(why) => return Ok(stuck(status, "Parsed", phase::RENDERING, why, now)),
        };
        let revision = match self.revision(app, &clusters, &resolved, &known).await? {
            Ok(revision) => revision,
            Err(why) => return Ok(stuck(status, "Parsed", phase::RENDERING, why, now)),
        };
        status.ready("Parsed", now);
        status.latest_revision = Some(revision::reference(&revision));
        status.ready("Revision", now);
        let limit = resolved.policies.garbage.revision_limit;
        known.prune(&self.client, &app.metadata.namespace, revision.name(), limit).await?;
        let mut session = match self.session(app, &clusters, resolved, &revision, status, now).await? {
            Ok(session) => session,
            Err(why) => return Ok(stuck(status, "Render", phase::RENDERING, why, now)),
        };
        if restart(&session, status, &revision) {
            self.attempts.forget(&session.app.uid);
            self.renders.forget(&session.app.uid);
            self.exchanges.end(&session.key());
            // The run is recorded in the status before it starts. The next pass starts it.
            return Ok(Outcome::CheckAfter(Duration::ZERO));
        }
        let outcome = self.run(&mut session, status).await?;
        self.settle(&mut session, status, &revision, outcome).await
    }

    /// Returns the current revision of the application, creating it if necessary. The inner error says why it cannot be
    /// created.
    async fn revision(
        &self,
        app: &Application,
        clusters: &Clusters,
        resolved: &Resolved,
        known: &Revisions,
    ) -> Result<Result<Cached<Revision>, String>, ClusterError> {
        let spec = &resolved.spec;
        // A revision records its definitions. Only an application that follows definitions has to read the current
        // ones.
        if !app.follows_definitions()
            && let Some(found) = known.find(app, &revision::hash(app, spec, None))
        {
            return Ok(Ok(found));
        }
        let (definitions, missing) = match self.definitions(app, resolved, known) {
            Ok(found) => found,
            Err(why) => return Ok(Err(why)),
        };
        let hash = revision::hash(app, spec, app.follows_definitions().then_some(&definitions));
        if let Some(found) = known.find(app, &hash) {
            return Ok(Ok(found));
        }
        if let Some(why) = missing {
            return Ok(Err(why));
        }
        let referred = match referred::read(clusters, &app.metadata.namespace, spec).await? {
            Ok(referred) => referred,
            Err(why) => return Ok(Err(why)),
        };
        let content = Content { app, spec, definitions: &definitions, referred: &referred, hash };
        known.create(&self.client, &content).await.map(Ok)
    }

    pub(super) fn known_revisions(&self, app: &Application) -> Result<Revisions, ClusterError> {
        let known = self.revisions.indexed(crate::apply::tracker::BY_APPLICATION, &app.reference().key());
        let known = known
            .map_err(|error| ClusterError::Refused(format!("decode an ApplicationRevision: {error}")))?;
        Ok(Revisions::of(app, known))
    }

    /// Returns access to clusters with the permissions of the application: those of its service account, if it has one.
    pub(super) fn clusters_of(&self, app: &Application) -> Result<Clusters, String> {
        self.clusters.acting_as_account(&app.metadata.namespace, app.annotation(names::SERVICE_ACCOUNT))
    }

    /// Prepares the session. The inner error says why the revision is invalid.
    async fn session<'a>(
        &'a self,
        app: &Application,
        clusters: &'a Clusters,
        resolved: Resolved,
        revision: &Cached<Revision>,
        status: &Status,
        now: Timestamp,
    ) -> Result<Result<Session<'a>, String>, ClusterError> {
        let (mut spec, policies) = match app.publish_version().is_empty() {
            true => (resolved.spec, resolved.policies),
            false => match revision::application_spec(revision)
                .and_then(|spec| Ok((Policies::parse(&spec.policies)?, spec)))
            {
                Ok((policies, spec)) => (spec, policies),
                Err(why) => return Ok(Err(why)),
            },
        };
        let recorded = match self.recollection.of(revision) {
            Ok(recorded) => recorded,
            Err(why) => return Ok(Err(why)),
        };
        referred::fill(&mut spec, &recorded.referred);
        let reference = app.reference();
        let context = AppContext {
            name: reference.name.clone(),
            namespace: reference.namespace.clone(),
            revision: revision.name().to_owned(),
            revision_number: revision::number(revision),
            labels: app.metadata.labels.clone(),
            annotations: app.metadata.annotations.clone(),
            publish_version: reference.publish_version.clone(),
            workflow_name: app.annotation(names::WORKFLOW_NAME).to_owned(),
            components: json!(spec.components),
            cluster_version: self.clusters.local().version().await?,
            of_run: None,
        };
        Ok(Ok(Session {
            clusters,
            sources: &self.sources,
            catalog: &self.catalog,
            exchanges: &self.exchanges,
            renders: &self.renders,
            judgements: &self.judgements,
            trackers: Trackers::load(&self.trackers, &self.client, reference.clone())?,
            attempts: reference.uid.clone(),
            app: reference,
            context,
            spec,
            definitions: recorded.definitions.clone(),
            policies,
            variables: Variables::default(),
            services: status.services.clone(),
            ignores_health: !app.annotation(names::DISABLE_HEALTH_CHECK).is_empty(),
            now,
        }))
    }

    /// Applies policies and runs a round of the workflow, unless it has ended.
    async fn run(&self, session: &mut Session<'_>, status: &mut Status) -> Result<Outcome, ClusterError> {
        let now = session.now;
        self.resume(session, status).await?;
        let plan = match steps::plan(&session.spec, session.spec.workflow.as_ref(), &session.policies) {
            Ok(plan) => plan,
            Err(why) => {
                if let Some(workflow) = &mut status.workflow {
                    (workflow.status, workflow.message) = ("failed".into(), why.clone());
                    (workflow.terminated, workflow.finished) = (true, true);
                    workflow.end_time.get_or_insert(now);
                }
                status.problem("Workflow", why, now);
                return Ok(Outcome::CheckAfter(RESYNC));
            }
        };
        if status.workflow.as_ref().is_some_and(|workflow| workflow.finished) {
            return Ok(Outcome::CheckAfter(rest(session)));
        }
        if let Err(error) = session.apply_policies().await {
            let why = error.message().to_owned();
            return Ok(stuck(status, "Policy", phase::GENERATING_POLICY, why, now));
        }
        status.ready("Policy", now);
        status.ready("Render", now);
        self.round(session, status, &plan).await
    }

    /// Starts the record of a new run, or reads the state of a running one.
    async fn resume(&self, session: &mut Session<'_>, status: &Status) -> Result<(), ClusterError> {
        let Some(workflow) = &status.workflow else { return Ok(()) };
        if workflow.status == INITIALIZING {
            return session.trackers.begin(&workflow.app_revision, workflow.start_time).await;
        }
        if workflow.context_backend.is_some() {
            session.variables = Variables::load(self.clusters.local(), &session.owner()).await?;
        }
        Ok(())
    }

    async fn round(
        &self,
        session: &mut Session<'_>,
        status: &mut Status,
        plan: &Plan,
    ) -> Result<Outcome, ClusterError> {
        let before = session.variables.clone();
        let mut workflow = status.workflow.take().unwrap_or_default();
        let round = Engine::new(session, &self.attempts).round(plan, &mut workflow).await;
        if session.variables != before {
            workflow.context_backend =
                Some(session.variables.save(self.clusters.local(), &session.owner()).await?);
        }
        if workflow.finished {
            self.renders.forget(&session.attempts);
        }
        status.workflow = Some(workflow);
        let wait =
            round.wake.map(|wake| Duration::try_from(wake.duration_since(session.now)).unwrap_or_default());
        Ok(Outcome::CheckAfter(wait.unwrap_or(RESYNC).min(RESYNC)))
    }

    /// Corrects drift, evaluates health, collects garbage and updates the status.
    async fn settle(
        &self,
        session: &mut Session<'_>,
        status: &mut Status,
        revision: &Cached<Revision>,
        mut outcome: Outcome,
    ) -> Result<Outcome, ClusterError> {
        let now = session.now;
        let workflow = status.workflow.clone().unwrap_or_default();
        let succeeded = workflow.status == "succeeded";
        if succeeded {
            revision::succeed(&self.client, &session.app.namespace, revision).await?;
        }
        let mut kept = Kept::All;
        if succeeded || workflow.suspend {
            session.trackers.follow(session.clusters).await?;
            kept = self.keep(session, status, now).await;
            // When a cluster comes back, its applications are requeued.
            outcome =
                outcome.and(Outcome::CheckAfter(if kept == Kept::NotAll { REPAIR } else { rest(session) }));
        }
        // While a desired object cannot be written, nothing is deleted. An unreachable cluster does not prevent
        // deletion in others.
        let collects = succeeded || (workflow.finished && session.policies.garbage.continue_on_failure);
        if collects && kept != Kept::NotAll {
            outcome = outcome.and(self.collect(session, status, &workflow).await?);
        }
        status.services = std::mem::take(&mut session.services);
        status.applied_resources = applied(&session.trackers);
        if status.status != phase::GENERATING_POLICY
            || status
                .conditions
                .iter()
                .all(|condition| condition.kind != "Policy" || condition.status == "True")
        {
            status.status = phase_of(&workflow, &status.services).to_owned();
        }
        sum_up(status, &workflow, now);
        Ok(outcome)
    }

    /// Restores recorded objects and evaluates their health. Returns whether all are as desired.
    async fn keep(&self, session: &mut Session<'_>, status: &mut Status, now: Timestamp) -> Kept {
        let app = session.app.key();
        let dispatcher = Dispatcher { clusters: session.clusters, policies: &session.policies, app: &app };
        let (live, errors) = dispatcher.keep(&session.trackers, true).await;
        let suspended = status.workflow.as_ref().is_some_and(|workflow| workflow.suspend);
        if !suspended {
            session.refresh_services(&live);
        }
        match errors.is_empty() {
            true => status.drop_condition("StateKeep"),
            false => status.problem("StateKeep", summary(&errors), now),
        }
        match errors.iter().all(ClusterError::is_unreachable) {
            true if errors.is_empty() => Kept::All,
            true => Kept::Reachable,
            false => Kept::NotAll,
        }
    }

    async fn collect(
        &self,
        session: &mut Session<'_>,
        status: &mut Status,
        workflow: &WorkflowStatus,
    ) -> Result<Outcome, ClusterError> {
        if let Some(wait) = remaining_retention(workflow, session) {
            return Ok(Outcome::CheckAfter(wait));
        }
        let app = session.app.key();
        let collector = Collector {
            clusters: session.clusters,
            policy: &session.policies.garbage,
            app: &app,
            orphans: false,
            order: deletion_order(&session.spec),
        };
        let left = collector.after_update(&mut session.trackers).await?;
        match left.problems.is_empty() {
            true => status.drop_condition("GarbageCollection"),
            false => status.problem("GarbageCollection", left.message(), session.now),
        }
        Ok(Outcome::CheckAfter(match () {
            () if !left.problems.is_empty() => REPAIR,
            () if !left.waiting.is_empty() => COLLECT,
            () => rest(session),
        }))
    }
}

/// Returns the resync period: objects in other clusters may not be watched, and objects of others do not trigger a
/// reconcile.
fn rest(session: &Session<'_>) -> Duration {
    let is_here = session.trackers.all().iter().all(Tracker::is_local);
    if is_here && session.policies.owns_all() { SETTLED } else { RESYNC }
}

/// Which recorded objects are as desired.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kept {
    All,
    /// All in reachable clusters.
    Reachable,
    NotAll,
}

/// Returns all unreachable clusters, or the first other problem.
fn summary(errors: &[ClusterError]) -> String {
    match errors.iter().find(|error| !error.is_unreachable()) {
        Some(error) => error.to_string(),
        None => {
            let clusters: BTreeSet<String> = errors.iter().map(ToString::to_string).collect();
            clusters.into_iter().collect::<Vec<_>>().join("; ")
        }
    }
}

/// Restarts the workflow if the revision has changed, or if the latest record is for another revision, because the
/// status with that run was lost. Returns whether it did.
fn restart(session: &Session<'_>, status: &mut Status, revision: &Cached<Revision>) -> bool {
    let version = &session.app.publish_version;
    let wanted = if version.is_empty() { revision.name() } else { version };
    let recorded = session.trackers.current().map(Tracker::revision);
    let is_at = status.workflow.as_ref().is_some_and(|workflow| {
        let begins = workflow.status == INITIALIZING;
        let is_recorded = recorded.is_some_and(|recorded| recorded.is_empty() || recorded == wanted);
        workflow.app_revision == *wanted && (begins || is_recorded)
    });
    if is_at {
        return false;
    }
    status.workflow = Some(WorkflowStatus {
        app_revision: wanted.to_owned(),
        status: INITIALIZING.into(),
        start_time: Some(session.now),
        ..WorkflowStatus::default()
    });
    for stage in &STAGES[4..] {
        status.drop_condition(stage);
    }
    let names: BTreeSet<&str> =
        session.spec.components.iter().map(|component| component.name.as_str()).collect();
    status.services.retain(|service| names.contains(service.name.as_str()));
    status.status = phase::RUNNING_WORKFLOW.into();
    true
}

/// Returns how much longer garbage is kept.
fn remaining_retention(workflow: &WorkflowStatus, session: &Session<'_>) -> Option<Duration> {
    let passed = session.now.duration_since(workflow.end_time?);
    let left = RETENTION.checked_sub(Duration::try_from(passed).unwrap_or_default())?;
    (!left.is_zero() && session.trackers.has_garbage()).then_some(left)
}

/// Records that a stage failed.
fn stuck(status: &mut Status, condition: &str, phase: &str, why: String, now: Timestamp) -> Outcome {
    status.problem(condition, why, now);
    status.status = phase.to_owned();
    Outcome::CheckAfter(REPAIR)
}

fn sum_up(status: &mut Status, workflow: &WorkflowStatus, now: Timestamp) {
    match workflow.status.as_str() {
        "succeeded" => {
            status.ready("Workflow", now);
            status.ready("Ready", now);
        }
        "failed" | "terminated" => status.problem("Workflow", workflow.message.clone(), now),
        _ => {}
    }
}

fn applied(trackers: &Trackers) -> Vec<Value> {
    let entry = |entry: &crate::apply::tracker::Managed| {
        let mut fields = Map::new();
        for (name, text) in [
            ("apiVersion", &entry.api_version),
            ("kind", &entry.kind),
            ("name", &entry.name),
            ("namespace", &entry.namespace),
            ("cluster", &entry.cluster),
            ("creator", &entry.creator),
        ] {
            if !text.is_empty() {
                fields.insert(name.into(), text.clone().into());
            }
        }
        Value::Object(fields)
    };
    trackers.kept().iter().map(entry).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::Service;

    #[test]
    fn a_workflow_that_has_not_succeeded_is_not_running() {
        let workflow = WorkflowStatus { status: "executing".into(), ..WorkflowStatus::default() };
        assert_eq!(phase_of(&workflow, &[Service::default()]), phase::RUNNING_WORKFLOW);
    }
}
