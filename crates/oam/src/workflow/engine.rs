//! One round of a workflow: decides which steps run, and runs them.
//!
//! A round runs every step that can run, each from the start. Unfinished steps are retried in the next round: when a
//! watched object changes, at a given time, or with backoff.

use std::time::Duration;

use jiff::Timestamp;
use serde_json::{Map, Value, json};
use setpoint_cue::{Instance, Source};

use super::attempts::{Attempts, later};
use super::calls::Reply;
use super::component::StepError;
use super::steps::{APPLY_COMPONENT, Plan, STEP_GROUP};
use super::template::{MAX_CALLS, Returned, StepTemplate};
use super::{condition, direct, duration};
use crate::apply::paths;
use crate::digest;
use crate::model::{Input, Output, Phase, Step, StepStatus, WorkflowStatus, bounded};
use crate::session::Session;

/// The status of a run that has not done anything yet.
pub(crate) const INITIALIZING: &str = "initializing";

/// The requeue delay of a step that waits for a response, in case the response does not trigger a reconcile.
const AWAIT: Duration = Duration::from_secs(5);

/// Reasons of step phases.
pub(crate) mod reason {
    pub(crate) const WAIT: &str = "Wait";
    pub(crate) const EXECUTE: &str = "Execute";
    pub(crate) const SUSPEND: &str = "Suspend";
    pub(crate) const TIMEOUT: &str = "Timeout";
    pub(crate) const RETRIES: &str = "FailedAfterRetries";
    pub(crate) const ACTION: &str = "Action";
    pub(crate) const TERMINATE: &str = "Terminate";
    pub(crate) const SKIP: &str = "Skip";
    pub(crate) const INPUT: &str = "Input";
}

/// A step while it runs.
pub(crate) struct Running<'a> {
    pub(crate) name: &'a str,
    pub(crate) kind: &'a str,
    pub(crate) phase: Phase,
    pub(crate) reason: String,
    pub(crate) started: Timestamp,
    /// Inputs for the component that the step applies: paths and values.
    pub(crate) inputs: Vec<(String, Value)>,
}

/// The remaining work after a round.
#[derive(Clone, Debug, Default)]
pub(crate) struct Round {
    /// The latest time for the next round.
    pub(crate) wake: Option<Timestamp>,
}

impl Round {
    fn wake_at(&mut self, at: Timestamp) {
        self.wake = Some(self.wake.map_or(at, |wake| wake.min(at)));
    }
}

/// The result of an attempt to run a step.
struct Outcome {
    phase: Phase,
    reason: &'static str,
    message: String,
    wake: Option<Timestamp>,
}

impl Outcome {
    fn new(phase: Phase, reason: &'static str, message: impl Into<String>) -> Self {
        Self { phase, reason, message: bounded(message.into()), wake: None }
    }
}

/// Whether a step may run.
enum Readiness {
    Run,
    Pending(String),
    Skip(String),
}

/// Runs rounds of a workflow.
pub(crate) struct Engine<'a, 's> {
    pub(crate) session: &'a mut Session<'s>,
    pub(crate) attempts: &'a Attempts,
    round: Round,
    /// The identity of the run. Steps of different runs have different ids, and so do objects named after them.
    run: Value,
}

impl<'a, 's> Engine<'a, 's> {
    pub(crate) fn new(session: &'a mut Session<'s>, attempts: &'a Attempts) -> Self {
        Self { session, attempts, round: Round::default(), run: Value::Null }
    }

    /// Runs one round. Changes the status; errors of steps are in it.
    pub(crate) async fn round(mut self, plan: &Plan, status: &mut WorkflowStatus) -> Round {
        status.mode = plan.modes.name();
        let before = phases(status);
        let start = *status.start_time.get_or_insert(self.session.now);
        // The records of a WorkflowRun are not used.
        self.run = self.session.trackers.current().map_or(json!(start), |record| json!(record.run()));
        let held = is_held(status);
        if status.terminated {
            self.attempts.forget(&self.session.app.uid);
            self.session.exchanges.end(&self.session.key());
            terminate(status);
        } else if !held {
            let mut steps = std::mem::take(&mut status.steps);
            self.run_steps(&plan.steps, &mut steps, plan).await;
            status.steps = steps;
        }
        conclude(status, plan, held, self.session.now);
        if !status.finished && awaits_others(status, plan) && phases(status) != before {
            self.round.wake_at(self.session.now);
        }
        self.round
    }

    async fn run_steps(&mut self, steps: &[Step], statuses: &mut Vec<StepStatus>, plan: &Plan) {
        for (index, step) in steps.iter().enumerate() {
            let mut status = self.take(statuses, step);
            if !status.phase.is_done() {
                let before = if plan.modes.dag { 0 } else { index };
                match self.readiness(step, before, statuses, None) {
                    Readiness::Run if step.kind == STEP_GROUP => {
                        self.run_group(step, &mut status, statuses, plan).await
                    }
                    Readiness::Run => self.run_leaf(step, &mut status, "").await,
                    other => self.not_run(step, &mut status, other),
                }
            }
            let done = status.phase.is_done();
            statuses.insert(index.min(statuses.len()), status);
            if !done && !plan.modes.dag {
                break;
            }
        }
    }

    /// Runs the steps of a group. The group is done when all of them are.
    async fn run_group(&mut self, group: &Step, status: &mut StepStatus, others: &[StepStatus], plan: &Plan) {
        status.first_execute_time.get_or_insert(self.session.now);
        let mut subs = std::mem::take(&mut status.sub_steps);
        for (index, step) in group.sub_steps.iter().enumerate() {
            let mut sub = self.take(&mut subs, step);
            if !sub.phase.is_done() {
                let before = if plan.modes.sub_dag { 0 } else { index };
                match self.readiness(step, before, &subs, Some(others)) {
                    Readiness::Run => self.run_leaf(step, &mut sub, &group.name).await,
                    other => self.not_run(step, &mut sub, other),
                }
            }
            let done = sub.phase.is_done();
            subs.insert(index.min(subs.len()), sub);
            if !done && !plan.modes.sub_dag {
                break;
            }
        }
        status.sub_steps = subs;
        self.judge_group(group, status);
    }

    fn judge_group(&mut self, group: &Step, status: &mut StepStatus) {
        if let Some(deadline) = deadline(group, status) {
            if deadline <= self.session.now && !is_complete(group, status) {
                for sub in status.sub_steps.iter_mut().filter(|sub| !sub.phase.is_done()) {
                    self.forget(&sub.name);
                    (sub.phase, sub.reason) = (Phase::Failed, reason::TIMEOUT.into());
                }
                (status.phase, status.reason) = (Phase::Failed, reason::TIMEOUT.into());
                return;
            }
            self.round.wake_at(deadline);
        }
        let subs = &status.sub_steps;
        let any = |phase: Phase| subs.iter().any(|sub| sub.phase == phase);
        let skipped = !subs.is_empty() && subs.iter().all(|sub| sub.phase == Phase::Skipped);
        status.phase = match is_complete(group, status) {
            true if any(Phase::Failed) => Phase::Failed,
            true if skipped => Phase::Skipped,
            true => Phase::Succeeded,
            false if any(Phase::Suspending) => Phase::Suspending,
            false => Phase::Running,
        };
        status.reason = match status.phase {
            Phase::Failed => reason::EXECUTE.into(),
            Phase::Suspending => reason::SUSPEND.into(),
            Phase::Running => reason::WAIT.into(),
            _ => String::new(),
        };
    }

    fn not_run(&mut self, step: &Step, status: &mut StepStatus, readiness: Readiness) {
        match readiness {
            Readiness::Run => {}
            Readiness::Pending(message) => {
                (status.phase, status.reason, status.message) =
                    (Phase::Pending, reason::WAIT.into(), message);
            }
            Readiness::Skip(message) => {
                (status.phase, status.reason, status.message) =
                    (Phase::Skipped, reason::SKIP.into(), bounded(message));
                status.first_execute_time.get_or_insert(self.session.now);
                self.forget(&step.name);
                self.null_outputs(step);
                status.sub_steps = step
                    .sub_steps
                    .iter()
                    .map(|sub| StepStatus {
                        phase: Phase::Skipped,
                        reason: reason::SKIP.into(),
                        ..self.new_status(sub)
                    })
                    .collect();
            }
        }
    }

    /// Takes a step's status out of a list, or creates a new one.
    fn take(&self, statuses: &mut Vec<StepStatus>, step: &Step) -> StepStatus {
        match statuses.iter().position(|status| status.name == step.name) {
            Some(index) => statuses.remove(index),
            None => self.new_status(step),
        }
    }

    fn new_status(&self, step: &Step) -> StepStatus {
        StepStatus {
            id: digest::short_hash(&json!([self.run, step.name, step.kind])),
            name: step.name.clone(),
            kind: step.kind.clone(),
            ..StepStatus::default()
        }
    }

    /// Decides whether a step may run. The first `before` of the known steps precede it.
    fn readiness(
        &self,
        step: &Step,
        before: usize,
        known: &[StepStatus],
        outer: Option<&[StepStatus]>,
    ) -> Readiness {
        let find = |name: &str| {
            let all = known.iter().chain(outer.into_iter().flatten());
            all.flat_map(|status| std::iter::once(status).chain(&status.sub_steps))
                .find(|status| status.name == name)
        };
        for name in &step.depends_on {
            if !find(name).is_some_and(|status| status.phase.is_done()) {
                return Readiness::Pending(format!("Pending on DependsOn: {name}"));
            }
        }
        if step.condition.is_empty() {
            let failed = |name: &String| find(name).is_some_and(|status| status.phase == Phase::Failed);
            let skipped = |name: &String| find(name).is_some_and(|status| status.phase == Phase::Skipped);
            if step.depends_on.iter().any(|name| failed(name) || skipped(name))
                || known.iter().take(before).any(|status| status.phase == Phase::Failed)
            {
                return Readiness::Skip("a step before it did not succeed".to_owned());
            }
        }
        if let Some(input) =
            self.inputs(step).iter().find(|input| !self.session.variables.values.contains_key(&input.from))
        {
            return Readiness::Pending(format!("Pending on Input: {}", input.from));
        }
        self.condition(step, known, outer)
    }

    fn condition(&self, step: &Step, known: &[StepStatus], outer: Option<&[StepStatus]>) -> Readiness {
        if step.condition.is_empty() || step.condition == "always" {
            return Readiness::Run;
        }
        let all: Vec<StepStatus> = known.iter().chain(outer.into_iter().flatten()).cloned().collect();
        let inputs: Map<String, Value> = self
            .inputs(step)
            .iter()
            .filter_map(|input| {
                Some((input.from.clone(), self.session.variables.values.get(&input.from)?.clone()))
            })
            .collect();
        let context = self.session.context.of_step(&step.name, "", "");
        match condition::holds(&step.condition, &all, &inputs, &context) {
            Ok(true) => Readiness::Run,
            Ok(false) => Readiness::Skip(String::new()),
            Err(why) => Readiness::Skip(format!("pre check error: {why}")),
        }
    }

    /// Returns the inputs of a step, with those of the component it applies.
    fn inputs(&self, step: &Step) -> Vec<Input> {
        let component = self.component_of(step);
        step.inputs
            .iter()
            .chain(component.into_iter().flat_map(|component| &component.inputs))
            .cloned()
            .collect()
    }

    fn outputs(&self, step: &Step) -> Vec<Output> {
        let component = self.component_of(step);
        step.outputs
            .iter()
            .chain(component.into_iter().flat_map(|component| &component.outputs))
            .cloned()
            .collect()
    }

    fn component_of(&self, step: &Step) -> Option<&crate::model::Component> {
        let name = super::steps::applied_component(step)?;
        self.session.spec.components.iter().find(|component| component.name == name)
    }

    fn null_outputs(&mut self, step: &Step) {
        for output in self.outputs(step) {
            self.session.variables.values.entry(output.name).or_insert(Value::Null);
        }
    }

    /// Runs a step, unless a failed attempt is too recent.
    async fn run_leaf(&mut self, step: &Step, status: &mut StepStatus, group: &str) {
        let (uid, now) = (self.session.attempts.clone(), self.session.now);
        if let Some(deadline) = deadline(step, status) {
            if deadline <= now {
                (status.phase, status.reason) = (Phase::Failed, reason::TIMEOUT.into());
                return self.ended(step, status);
            }
            self.round.wake_at(deadline);
        }
        if let Some(next) = self.attempts.next(&uid, &step.name).filter(|next| *next > now) {
            return self.round.wake_at(next);
        }
        let started = *status.first_execute_time.get_or_insert(now);
        if let Some(deadline) = deadline(step, status) {
            self.round.wake_at(deadline);
        }
        let outcome = self.attempt(step, status, group, started).await;
        let awaits = matches!(outcome, Err(StepError::Await(_)));
        let outcome = outcome.unwrap_or_else(|error| self.failure(step, status, error));
        // Another attempt sends the request again, but changes of objects do not make it happen sooner.
        let asked = !awaits && self.session.exchanges.end_step(&self.session.key(), &step.name);
        if let (true, reason::WAIT, Some(wake)) = (asked, outcome.reason, outcome.wake) {
            self.attempts.hold(&uid, &step.name, wake);
        }
        if let Some(wake) = outcome.wake {
            self.round.wake_at(wake);
        }
        let changed = status.phase != outcome.phase || status.message != outcome.message;
        if changed || status.last_execute_time.is_none() {
            status.last_execute_time = Some(now);
        }
        (status.phase, status.reason, status.message) =
            (outcome.phase, outcome.reason.into(), outcome.message);
        if status.phase.is_done() {
            self.ended(step, status);
        }
    }

    fn ended(&mut self, step: &Step, status: &StepStatus) {
        self.forget(&step.name);
        if status.phase == Phase::Failed {
            self.null_outputs(step);
        }
    }

    /// Clears the state between attempts of a step.
    fn forget(&self, step: &str) {
        self.attempts.done(&self.session.attempts, step);
        self.session.exchanges.end_step(&self.session.key(), step);
    }

    fn waits(&self, step: &Step, message: String) -> Outcome {
        let wake = self.attempts.waited(&self.session.attempts, &step.name, &message, self.session.now);
        Outcome { wake: Some(wake), ..Outcome::new(Phase::Running, reason::WAIT, message) }
    }

    fn failure(&self, step: &Step, status: &StepStatus, error: StepError) -> Outcome {
        match error {
            StepError::Await(message) => {
                // A polling step keeps its last message.
                let known =
                    Some(&status.message).filter(|known| status.phase == Phase::Running && !known.is_empty());
                let message = known.cloned().unwrap_or(message);
                let wake = Some(later(self.session.now, AWAIT));
                Outcome { wake, ..Outcome::new(Phase::Running, reason::WAIT, message) }
            }
            StepError::Fail(message) => Outcome::new(Phase::Failed, reason::ACTION, message),
            StepError::Unreachable(message) => self.waits(step, message),
            StepError::Retry(message) => {
                match self.attempts.failed(&self.session.attempts, &step.name, self.session.now) {
                    Some(next) => {
                        Outcome { wake: Some(next), ..Outcome::new(Phase::Running, reason::EXECUTE, message) }
                    }
                    None => Outcome::new(Phase::Failed, reason::RETRIES, message),
                }
            }
        }
    }

    /// Runs a step's template: makes its calls one after the other.
    async fn attempt(
        &mut self,
        step: &Step,
        status: &StepStatus,
        group: &str,
        started: Timestamp,
    ) -> Result<Outcome, StepError> {
        let inputs = self.values(step);
        let applies_component = step.kind == APPLY_COMPONENT;
        let mut parameter = if step.properties.is_null() { json!({}) } else { step.properties.clone() };
        if !applies_component {
            fill_parameter(&mut parameter, &inputs).map_err(StepError::Fail)?;
        }
        let running = Running {
            name: &step.name,
            kind: &step.kind,
            phase: status.phase,
            reason: status.reason.clone(),
            started,
            inputs,
        };
        if let Some(call) = direct::call(step, &parameter).filter(|_| self.outputs(step).is_empty()) {
            let reply = self.session.perform(&call, &running).await?;
            return Ok(self.ends(step, reply).unwrap_or_else(|| Outcome::new(Phase::Succeeded, "", "")));
        }
        let (source, context) =
            (self.source(&step.kind)?, self.session.context.of_step(&step.name, group, &status.id));
        let sources = self.session.sources.clone();
        let template = StepTemplate { sources: &sources, source, parameter, context };
        let (mut returned, mut message) = (Returned::default(), String::new());
        for _ in 0..MAX_CALLS {
            let Some(call) = template.next(&returned)? else {
                self.set_outputs(step, &template, &returned)?;
                return Ok(Outcome::new(Phase::Succeeded, "", message));
            };
            match self.session.perform(&call, &running).await? {
                Reply::Done(value) => returned.add(&call, value),
                Reply::Message(text) => {
                    message = text;
                    returned.add(&call, json!({}));
                }
                other => {
                    return Ok(self
                        .ends(step, other)
                        .unwrap_or_else(|| Outcome::new(Phase::Succeeded, "", message)));
                }
            }
        }
        Err(StepError::Fail(format!("the step makes more than {MAX_CALLS} calls")))
    }

    /// Returns the result of an attempt that a reply ends. `None` if it continues.
    fn ends(&mut self, step: &Step, reply: Reply) -> Option<Outcome> {
        match reply {
            Reply::Done(_) | Reply::Message(_) => None,
            Reply::Wait(text) => Some(self.waits(step, text)),
            Reply::Suspend { message, until } => {
                Some(Outcome { wake: until, ..Outcome::new(Phase::Suspending, reason::SUSPEND, message) })
            }
            Reply::Fail(text) => Some(Outcome::new(Phase::Failed, reason::ACTION, text)),
            Reply::Break(text) => Some(Outcome::new(Phase::Succeeded, "", text)),
        }
    }

    fn source(&mut self, kind: &str) -> Result<Source, StepError> {
        let sources = self.session.sources;
        let definition = self.session.step(kind);
        let definition = definition
            .ok_or_else(|| StepError::Retry(format!("WorkflowStepDefinition {kind:?} not found")))?;
        let parsed = sources.parse(&format!("{kind}.cue"), definition.template()?);
        parsed.map_err(|errors| StepError::Retry(errors.to_string()))
    }

    fn values(&self, step: &Step) -> Vec<(String, Value)> {
        let values = &self.session.variables.values;
        self.inputs(step)
            .into_iter()
            .filter_map(|input| Some((input.parameter_key, values.get(&input.from)?.clone())))
            .collect()
    }

    fn set_outputs(
        &mut self,
        step: &Step,
        template: &StepTemplate<'_>,
        returned: &Returned,
    ) -> Result<(), StepError> {
        for output in self.outputs(step) {
            let value = template
                .value(returned, &output.value_from)
                .map_err(|why| format!("output {}: {why}", output.name))?;
            self.session.variables.set(output.name, value).map_err(StepError::Fail)?;
        }
        Ok(())
    }
}

/// Returns the phases of all steps.
fn phases(status: &WorkflowStatus) -> Vec<Phase> {
    let all = status.steps.iter().flat_map(|step| std::iter::once(step).chain(&step.sub_steps));
    all.map(|step| step.phase).collect()
}

/// Returns whether a step waits for another, which may be done by now: one that has not started, including in groups.
fn awaits_others(status: &WorkflowStatus, plan: &Plan) -> bool {
    let mut steps = plan.steps.iter().zip(&status.steps);
    let is_partial = |(step, status): (&Step, &StepStatus)| {
        !status.phase.is_done() && status.sub_steps.len() < step.sub_steps.len()
    };
    status.steps.len() < plan.steps.len() || phases(status).contains(&Phase::Pending) || steps.any(is_partial)
}

/// Sets inputs at paths of a step's properties.
fn fill_parameter(parameter: &mut Value, inputs: &[(String, Value)]) -> Result<(), String> {
    for (path, value) in inputs.iter().filter(|(path, _)| !path.is_empty()) {
        let path = path.strip_prefix("properties.").unwrap_or(path);
        paths::set(parameter, path, value.clone()).map_err(|why| format!("{}: {why}", reason::INPUT))?;
    }
    Ok(())
}

/// Evaluates an expression over data.
pub(crate) fn value_of(data: &Value, expression: &str) -> Result<Value, String> {
    let empty = Source::parse("data.cue", "").map_err(|errors| errors.to_string())?;
    let instance =
        Instance::builder().source(&empty).fill("", data).build().map_err(|errors| errors.to_string())?;
    instance.evaluate(expression).and_then(|value| value.to_json()).map_err(|errors| errors.to_string())
}

fn deadline(step: &Step, status: &StepStatus) -> Option<Timestamp> {
    let timeout = duration::parse(&step.timeout).ok()?;
    Some(later(status.first_execute_time?, timeout))
}

fn is_complete(group: &Step, status: &StepStatus) -> bool {
    status.sub_steps.len() >= group.sub_steps.len() && status.sub_steps.iter().all(|sub| sub.phase.is_done())
}

/// Returns whether a user has suspended the workflow. Steps that suspend themselves do not block others.
fn is_held(status: &WorkflowStatus) -> bool {
    let mut all = status.steps.iter().flat_map(|step| std::iter::once(step).chain(&step.sub_steps));
    status.suspend && !all.any(|step| step.phase == Phase::Suspending && step.reason == reason::SUSPEND)
}

/// Ends all steps of a workflow that a user has terminated.
fn terminate(status: &mut WorkflowStatus) {
    for step in &mut status.steps {
        for sub in &mut step.sub_steps {
            end_by_hand(sub);
        }
        end_by_hand(step);
    }
}

fn end_by_hand(step: &mut StepStatus) {
    if !step.phase.is_done() {
        (step.phase, step.reason) = (Phase::Failed, reason::TERMINATE.into());
    }
}

/// Summarizes the steps.
fn conclude(status: &mut WorkflowStatus, plan: &Plan, held: bool, now: Timestamp) {
    let by_hand = status.terminated;
    let all: Vec<&StepStatus> =
        status.steps.iter().flat_map(|step| std::iter::once(step).chain(&step.sub_steps)).collect();
    let failed = all.iter().find(|step| step.phase == Phase::Failed);
    let complete = status.steps.len() >= plan.steps.len() && all.iter().all(|step| step.phase.is_done());
    let suspending = all.iter().any(|step| step.phase == Phase::Suspending);
    let unfinished = all.iter().find(|step| !step.phase.is_done() && !step.message.is_empty());
    status.message = bounded(match (failed, unfinished) {
        (Some(step), _) if complete || by_hand => {
            format!("step {}: {} {}", step.name, step.reason, step.message).trim().to_owned()
        }
        (_, Some(step)) => format!("step {}: {}", step.name, step.message),
        _ => String::new(),
    });
    let has_failed = failed.is_some();
    status.suspend = !complete && (suspending || held);
    status.finished = complete || by_hand;
    status.terminated = by_hand || (complete && has_failed);
    status.status = match () {
        () if by_hand => "terminated",
        () if complete && has_failed => "failed",
        () if complete => "succeeded",
        () if status.suspend => "suspending",
        () => "executing",
    }
    .to_owned();
    if status.finished {
        status.end_time.get_or_insert(now);
    }
}
