//! The controller of CompositeControllers and DecoratorControllers.
//!
//! Owns: their conditions. Watches: them, and CustomResourceDefinitions, because kinds come and go.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use serde_json::{Value, json};
use setpoint::client::{IgnoreErrors, Patch, Subresource};
use setpoint::handler::{Handler, enqueue_mapped, predicate};
use setpoint::reconcile::ErrorContext;
use setpoint::source::Selection;
use setpoint::{
    Context, EventType, Informer, Key, Object, Outcome, Queue, ReconcileError, Reconciler, Recorder, Runnable,
};

use super::prepare::{NotReady, Preparation, Prepared, Ready};
use super::runner::{Fleet, Launch};
use super::{ControllerKey, ControllerType};
use crate::call::HookName;
use crate::names::{COMPONENT, definition_kind};
use crate::parents::{status_patch, with_conditions};
use crate::wire::AnsweredCondition;
use crate::{Options, Reload};

const NAME: &str = "hook-controller";
/// How often kinds and credentials are checked.
const LOOK_AGAIN: Duration = Duration::from_secs(300);

/// The errors of controllers' hooks, by hook. Cheap to clone.
#[derive(Clone, Default)]
struct Problems(Arc<Mutex<BTreeMap<ControllerKey, BTreeMap<&'static str, String>>>>);

struct Supervisor {
    context: Context,
    options: Options,
    fleet: Arc<Fleet>,
    recorder: Recorder,
    queue: Queue<ControllerKey>,
    composites: Informer,
    decorators: Informer,
    problems: Problems,
}

pub(super) fn controller(context: &Context, options: &Options, fleet: &Arc<Fleet>) -> Box<dyn Runnable> {
    let queue = context.queue::<ControllerKey>(NAME);
    let all = |of: ControllerType| context.informers.select(&of.kind(), Selection::default());
    let (composites, decorators) = (all(ControllerType::Composite), all(ControllerType::Decorator));
    for (of, informer) in [(ControllerType::Composite, &composites), (ControllerType::Decorator, &decorators)]
    {
        informer.add_handler(enqueue_mapped(&queue, move |object: &Object| {
            Some(ControllerKey { of, name: object.key().name().to_owned() })
        }));
    }
    let definitions = context.informers.metadata_of(&definition_kind());
    follow_definitions(&definitions, &queue, fleet, &options.reload, [&composites, &decorators]);
    let supervisor = Supervisor {
        context: context.clone(),
        options: options.clone(),
        fleet: fleet.clone(),
        recorder: context.recorder(COMPONENT),
        queue: queue.clone(),
        composites: composites.clone(),
        decorators: decorators.clone(),
        problems: Problems::default(),
    };
    let controller = context.controller(NAME, queue, supervisor).workers(1).persistent();
    Box::new(controller.waits_for(&composites).waits_for(&decorators).reads_own_writes())
}

/// A changed definition may affect any controller. So does a reload.
fn follow_definitions(
    definitions: &Informer,
    queue: &Queue<ControllerKey>,
    fleet: &Arc<Fleet>,
    reload: &Reload,
    controllers: [&Informer; 2],
) {
    let [composites, decorators] = controllers.map(|one| one.objects().clone());
    let all = Arc::new(move || {
        let of = |of: ControllerType, all: Vec<Object>| {
            all.into_iter().map(move |object| ControllerKey { of, name: object.key().name().to_owned() })
        };
        of(ControllerType::Composite, composites.list(None))
            .chain(of(ControllerType::Decorator, decorators.list(None)))
            .collect::<Vec<_>>()
    });
    let (adding, reloaded) = (queue.clone(), all.clone());
    reload.follow(Box::new(move || reloaded().into_iter().for_each(|key| adding.add(key))));
    let kinds = fleet.kinds.clone();
    let handler = enqueue_mapped(queue, move |_: &Object| {
        kinds.forget();
        all()
    });
    definitions.add_handler(handler.when(predicate::generation_changed()));
}

impl Reconciler for Supervisor {
    type Key = ControllerKey;

    async fn reconcile(&self, key: &ControllerKey) -> Result<Outcome, ReconcileError> {
        let informer = match key.of {
            ControllerType::Composite => &self.composites,
            ControllerType::Decorator => &self.decorators,
        };
        let object = informer.objects().get(&Key::cluster(&key.name));
        let runs = |object: &Object| {
            !object.meta().is_being_deleted() && self.options.selector.matches(&object.meta().labels)
        };
        let Some(object) = object.filter(runs) else {
            self.fleet.give_up(key);
            self.problems.0.lock().remove(key);
            return Ok(Outcome::Settled);
        };
        let mut value: Value = object.decode()?;
        value["apiVersion"] = key.of.kind().api_version().into();
        value["kind"] = key.of.name().into();
        let problem = match self.prepare(key, &value).await {
            Ok(mut ready) => {
                ready.identity.push(format!("reload {}", self.options.reload.generation()));
                self.start(key, &object, ready);
                None
            }
            Err(problem) => {
                self.refuse(key, &object, &value, &problem);
                Some(problem)
            }
        };
        self.write_status(key, &object, &value, problem.as_ref()).await?;
        match problem.filter(|problem| problem.retry) {
            None => Ok(Outcome::CheckAfter(LOOK_AGAIN)),
            Some(problem) => Err(ReconcileError::retry(format!("{key}: {}", problem.message))),
        }
    }
}

impl Supervisor {
    async fn prepare(&self, key: &ControllerKey, value: &Value) -> Prepared<Ready> {
        let (problems, queue, about) = (self.problems.clone(), self.queue.clone(), key.clone());
        let on_health = move |hook: HookName, problem: Option<String>| {
            let mut all = problems.0.lock();
            let of_controller = all.entry(about.clone()).or_default();
            match problem {
                Some(why) => _ = of_controller.insert(hook.text(), why),
                None => _ = of_controller.remove(hook.text()),
            }
            queue.add(about.clone());
        };
        let preparation = Preparation {
            client: &self.context.client,
            clock: &self.context.runtime.clock,
            metrics: &self.context.metrics,
            kinds: &self.fleet.kinds,
            transports: &self.options.transports,
            apply: self.options.apply,
            field_manager: &self.options.field_manager,
            on_health: Arc::new(on_health),
        };
        preparation.prepare(key, value).await
    }

    /// Starts a controller, unless it is already running with the same spec, kinds and credentials.
    fn start(&self, key: &ControllerKey, object: &Object, ready: Ready) {
        let Ready { setup, identity } = ready;
        if self.fleet.wanted(key).is_some_and(|known| known.identity == identity) {
            return;
        }
        self.problems.0.lock().remove(key);
        self.fleet.want(key, Launch { object: object.clone(), setup: Arc::new(setup), identity });
    }

    /// Records that a controller cannot be started. A running one with the same spec continues: a kind or a Secret that
    /// is briefly missing is no reason to stop it.
    fn refuse(&self, key: &ControllerKey, object: &Object, value: &Value, problem: &NotReady) {
        let (event, message) = match problem.reason {
            "ParentNotSupported" => ("SyncError", format!("[{}] Sync error - {}", key.name, problem.message)),
            _ => ("CreateError", format!("Cannot create new controller: {}", problem.message)),
        };
        if self.fleet.speaks_for(key) {
            self.recorder.event(&key.of.kind(), object, EventType::Warning, event, message);
        }
        let spec = value["spec"].to_string();
        if self.fleet.wanted(key).is_some_and(|known| known.identity.first() != Some(&spec)) {
            self.fleet.give_up(key);
        }
    }

    async fn write_status(
        &self,
        key: &ControllerKey,
        object: &Object,
        value: &Value,
        problem: Option<&NotReady>,
    ) -> Result<(), ReconcileError> {
        if !self.fleet.speaks_for(key) {
            return Ok(());
        }
        let failing = self.problems.0.lock().get(key).and_then(|hooks| hooks.values().next().cloned());
        let answered = [ready(problem), working(failing)];
        let generation = object.meta().generation;
        let status = [("observedGeneration".to_owned(), generation.into())].into_iter().collect();
        let now = self.context.runtime.clock.now();
        let status = with_conditions(status, &answered, &value["status"], generation, now);
        let Some(patch) = status_patch(&value["status"], &status) else { return Ok(()) };
        let patch = Patch::merge(&json!({"metadata": {"uid": object.meta().uid}, "status": patch}));
        let client = &self.context.client;
        let patched =
            client.patch_ignoring_response(&key.of.kind(), object.key(), Subresource::Status, patch).await;
        patched.ignore_not_found().attempting(|| format!("update the status of {key}"))
    }
}

fn ready(problem: Option<&NotReady>) -> AnsweredCondition {
    let (status, reason, message) = match problem {
        None => ("True", "Started", ""),
        Some(problem) => ("False", problem.reason, problem.message.as_str()),
    };
    condition("Ready", status, reason, message)
}

fn working(problem: Option<String>) -> AnsweredCondition {
    match problem {
        None => condition("HooksWorking", "True", "Working", ""),
        Some(why) => condition("HooksWorking", "False", "HookFailing", &why),
    }
}

fn condition(kind: &str, status: &str, reason: &str, message: &str) -> AnsweredCondition {
    // The API allows 32 KiB in a condition, but a sentence is enough.
    let message = message.chars().take(1024).collect();
    AnsweredCondition { kind: kind.into(), status: status.into(), reason: reason.into(), message }
}
