//! One round of a WorkflowRun.

use std::sync::Arc;
use std::time::Duration;

use serde::Deserialize;
use setpoint::client::Subresource;
use setpoint::reconcile::ErrorContext;
use setpoint::{
    Client, Clock, Decoded, EventType, Key, Lister, Outcome, ReconcileError, Reconciler, Recorder,
    UpdateBody, View,
};

use super::run::{RunStatus, Steps, WorkflowRun};
use crate::application::catalog::Catalog;
use crate::apply::cluster::ClusterError;
use crate::apply::tracker::Trackers;
use crate::clusters::Clusters;
use crate::definition::model::Definition;
use crate::model::{Mode, Spec, Workflow};
use crate::names;
use crate::policy::Policies;
use crate::render::component::Definitions;
use crate::render::context::AppContext;
use crate::render::judged::Judgements;
use crate::render::kept::Renders;
use crate::render::sources::Sources;
use crate::session::Session;
use crate::workflow::attempts::Attempts;
use crate::workflow::engine::Engine;
use crate::workflow::exchanges::Exchanges;
use crate::workflow::steps::{self, Plan};
use crate::workflow::variables::Variables;

/// The requeue delay if a user has to fix something.
const REPAIR: Duration = Duration::from_secs(10);
/// The resync period of a run.
const RESYNC: Duration = Duration::from_secs(300);

/// The reconciler of WorkflowRuns.
pub(super) struct Runs {
    pub(super) client: Client,
    pub(super) clock: Clock,
    pub(super) recorder: Recorder,
    pub(super) clusters: Clusters,
    pub(super) sources: Sources,
    pub(super) renders: Renders,
    pub(super) judgements: Judgements,
    pub(super) exchanges: Exchanges,
    pub(super) runs: Lister<WorkflowRun>,
    pub(super) catalog: Catalog,
    pub(super) attempts: Attempts,
}

impl Reconciler for Runs {
    type Key = Key;

    async fn reconcile(&self, key: &Key) -> Result<Outcome, ReconcileError> {
        let Some(run) = self.runs.read(key)? else {
            self.attempts.forget_all(&format!("{key} "));
            self.exchanges.end(key);
            return Ok(Outcome::Settled);
        };
        if run.status.finished || run.meta().is_being_deleted() {
            return Ok(Outcome::Settled);
        }
        let mut status = run.status.clone();
        if status.is_new() {
            self.attempts.forget_all(&format!("{key} "));
            // Applied objects are named after the start time of the run, so that is recorded first.
            status.begin(self.clock.now());
            self.write(&run, &status).await?;
            return Ok(Outcome::CheckAfter(Duration::ZERO));
        }
        let outcome = match self.prepare(&run) {
            Ok(prepared) => self.round(&run, &mut status, prepared).await?,
            Err(_) if status.is_terminated() => {
                status.end();
                Outcome::Settled
            }
            Err(why) => {
                status.problem(why, self.clock.now());
                Outcome::CheckAfter(REPAIR)
            }
        };
        self.tell(&run, &status);
        self.write(&run, &status).await?;
        Ok(outcome)
    }
}

/// The inputs of a run: its steps, their definitions, and access to clusters with its permissions.
struct Prepared {
    plan: Plan,
    definitions: Definitions,
    clusters: Clusters,
}

impl Runs {
    /// Returns the inputs of the run. The error says why it cannot start.
    fn prepare(&self, run: &WorkflowRun) -> Result<Prepared, String> {
        let account = run.annotation(names::SERVICE_ACCOUNT);
        let clusters = self.clusters.acting_as_account(&run.metadata.namespace, account)?;
        let workflow = self.workflow(run)?;
        let plan = steps::plan(&Spec::default(), Some(&workflow), &Policies::default())?;
        let mut definitions = Definitions::default();
        for step in plan.steps.iter().flat_map(|step| std::iter::once(step).chain(&step.sub_steps)) {
            let namespace = &run.metadata.namespace;
            let found = self.catalog.definition("WorkflowStepDefinition", namespace, &step.kind);
            let found = found.ok_or_else(|| format!("WorkflowStepDefinition {:?} not found", step.kind))?;
            let definition = Definition::of(&found).map_err(|error| format!("{}: {error}", step.kind))?;
            definitions.steps.insert(step.kind.clone(), Arc::new(definition));
        }
        Ok(Prepared { plan, definitions, clusters })
    }

    fn workflow(&self, run: &WorkflowRun) -> Result<Workflow, String> {
        let (spec, namespace) = (&run.spec, &run.metadata.namespace);
        let (steps, mode) = match &spec.workflow_spec {
            Some(own) => (own.steps.clone(), None),
            None if spec.workflow_ref.is_empty() => {
                return Err("spec: expected workflowSpec or workflowRef".to_owned());
            }
            None => {
                let found = self.catalog.get("Workflow", namespace, &spec.workflow_ref);
                let not_found =
                    || format!("spec.workflowRef: Workflow {namespace}/{} not found", spec.workflow_ref);
                let found = found.ok_or_else(not_found)?;
                let at = |error| format!("Workflow {namespace}/{}: {error}", spec.workflow_ref);
                let steps = Steps::deserialize(&found).map_err(at)?.steps;
                (steps, Option::<Mode>::deserialize(&found["mode"]).map_err(at)?)
            }
        };
        if steps.is_empty() {
            return Err("the workflow has no steps".to_owned());
        }
        Ok(Workflow { steps, mode: spec.mode.clone().or(mode), ..Workflow::default() })
    }

    async fn round(
        &self,
        run: &Decoded<WorkflowRun>,
        status: &mut RunStatus,
        prepared: Prepared,
    ) -> Result<Outcome, ReconcileError> {
        let Prepared { plan, definitions, clusters } = &prepared;
        let failed =
            |error: ClusterError| ReconcileError::retry(format!("WorkflowRun {}: {error}", run.key()));
        let mut session = self.session(run, clusters, definitions.clone());
        let owner = session.owner();
        if status.context_backend.is_some() {
            session.variables = Variables::load(self.clusters.local(), &owner).await.map_err(failed)?;
        }
        let (before, mut workflow) = (session.variables.clone(), status.workflow());
        let round = Engine::new(&mut session, &self.attempts).round(plan, &mut workflow).await;
        if session.variables != before {
            let saved = session.variables.save(self.clusters.local(), &owner).await;
            workflow.context_backend = Some(saved.map_err(failed)?);
        }
        let now = session.now;
        status.clear();
        status.set_workflow(workflow);
        if status.status == "succeeded" {
            status.succeed(now);
        }
        if status.finished {
            self.attempts.forget(&session.attempts);
            self.renders.forget(&session.attempts);
            self.judgements.forget(&session.attempts);
            self.exchanges.end(run.key());
            return Ok(Outcome::Settled);
        }
        let wait = round.wake.map(|wake| Duration::try_from(wake.duration_since(now)).unwrap_or_default());
        Ok(Outcome::CheckAfter(wait.unwrap_or(RESYNC).min(RESYNC)))
    }

    fn session<'a>(
        &'a self,
        run: &Decoded<WorkflowRun>,
        clusters: &'a Clusters,
        definitions: Definitions,
    ) -> Session<'a> {
        let reference = run.reference();
        let context = AppContext {
            name: reference.name.clone(),
            namespace: reference.namespace.clone(),
            of_run: Some(run.spec.context.clone()),
            ..AppContext::default()
        };
        // Attempts are counted per run, and removed by name.
        let attempts = format!("{} {}", run.key(), reference.uid);
        Session {
            clusters,
            sources: &self.sources,
            catalog: &self.catalog,
            exchanges: &self.exchanges,
            renders: &self.renders,
            judgements: &self.judgements,
            trackers: Trackers::none(&self.client, reference.clone()),
            app: reference,
            attempts,
            context,
            spec: Spec::default(),
            definitions,
            policies: Policies::of_run(),
            variables: Variables::default(),
            services: Vec::new(),
            ignores_health: false,
            now: self.clock.now(),
        }
    }

    /// Records an event when a run has ended or cannot start.
    fn tell(&self, run: &Decoded<WorkflowRun>, status: &RunStatus) {
        let (kind, object) = (WorkflowRun::kind(), run.object());
        if let Some(why) = status.blocked().filter(|why| Some(*why) != run.status.blocked()) {
            self.recorder.event(&kind, object, EventType::Warning, "Generate", why);
        }
        if status.finished && !run.status.finished {
            let message = match status.status.as_str() {
                "succeeded" => "WorkflowRun finished successfully",
                "terminated" => "WorkflowRun finished with terminated",
                _ => "WorkflowRun finished with failure",
            };
            self.recorder.event(&kind, object, EventType::Normal, "Execute", message);
        }
    }

    async fn write(&self, run: &Decoded<WorkflowRun>, status: &RunStatus) -> Result<(), ReconcileError> {
        if *status == run.status {
            return Ok(());
        }
        let body = UpdateBody::of(run.object()).set(&["status"], status);
        let written = self.client.update(&WorkflowRun::kind(), run.key(), Subresource::Status, &body).await;
        written.map(drop).attempting(format!("update the status of WorkflowRun {}", run.key()))
    }
}
