//! Prepares a controller: its kinds, its hooks and their credentials.

use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;
use setpoint::metrics::Metrics;
use setpoint::{Client, Clock, Key, ReconcileError};

use super::{ControllerKey, ControllerType, Kinds};
use crate::apply::ApplyMode;
use crate::call::{
    Caller, CallerSettings, CredentialError, Credentials, HookName, HookTarget, Labels, Transports,
};
use crate::model::{
    ChildRule, CompositeSpec, DecoratorSpec, EndpointConfig, Hook, Hooks, Resource, check_composite,
    check_decorator,
};
use crate::names::{APPLY_STRATEGY, definition_kind};
use crate::parents::{ChildKind, ParentKind, Setup};
use crate::wire::Shape;

/// Why a controller cannot run, for its condition `Ready`.
#[derive(Debug)]
pub(super) struct NotReady {
    pub(super) reason: &'static str,
    pub(super) message: String,
    /// Whether it may run later without a change to its spec.
    pub(super) retry: bool,
}

pub(super) type Prepared<T> = Result<T, NotReady>;

/// The settings for preparing controllers.
pub(super) struct Preparation<'a> {
    pub(super) client: &'a Client,
    pub(super) clock: &'a Clock,
    pub(super) metrics: &'a Metrics,
    pub(super) kinds: &'a Kinds,
    pub(super) transports: &'a Arc<dyn Transports>,
    pub(super) apply: ApplyMode,
    pub(super) field_manager: &'a str,
    /// Called when the health of a hook changes.
    pub(super) on_health: Arc<dyn Fn(HookName, Option<String>) + Send + Sync>,
}

/// A prepared controller, and a fingerprint of its kinds and credentials.
pub(super) struct Ready {
    pub(super) setup: Setup,
    pub(super) identity: Vec<String>,
}

fn invalid(message: String) -> NotReady {
    NotReady { reason: "InvalidSpec", message, retry: false }
}

impl From<ReconcileError> for NotReady {
    fn from(error: ReconcileError) -> Self {
        Self { reason: "ResourceNotFound", message: error.report(), retry: true }
    }
}

impl Preparation<'_> {
    pub(super) async fn prepare(&self, key: &ControllerKey, object: &Value) -> Prepared<Ready> {
        let apply = self.apply_mode(object)?;
        let mut identity = vec![object["spec"].to_string(), format!("{apply:?}")];
        let setup = match key.of {
            ControllerType::Composite => self.composite(key, object, apply, &mut identity).await?,
            ControllerType::Decorator => self.decorator(key, object, apply, &mut identity).await?,
        };
        let kinds = setup.parents.iter().map(|parent| &parent.kind);
        let kinds = kinds.chain(setup.children.iter().map(|child| &child.kind));
        identity.extend(kinds.map(|kind| format!("{kind} {} {}", kind.plural(), kind.namespaced())));
        Ok(Ready { setup, identity })
    }

    fn apply_mode(&self, object: &Value) -> Prepared<ApplyMode> {
        match object["metadata"]["annotations"][APPLY_STRATEGY].as_str() {
            None => Ok(self.apply),
            Some("dynamic-apply") => Ok(ApplyMode::Dynamic),
            Some("server-side-apply") => Ok(ApplyMode::ServerSide),
            Some(other) => Err(invalid(format!(
                "metadata.annotations[{APPLY_STRATEGY}]: expected dynamic-apply or server-side-apply, found {other:?}"
            ))),
        }
    }

    async fn composite(
        &self,
        key: &ControllerKey,
        object: &Value,
        apply: ApplyMode,
        identity: &mut Vec<String>,
    ) -> Prepared<Setup> {
        let spec: CompositeSpec = read(object)?;
        check_composite(&spec).map_err(invalid)?;
        let parent = self.parent(&spec.parent_resource.resource, spec.parent_resource.label_selector.clone());
        let mut parent = parent.await?;
        parent.ignores_status = spec.parent_resource.ignore_status_changes;
        self.check_definition(&parent).await?;
        let children = self.children(&spec.child_resources).await?;
        let is_rolling = children.iter().any(|child| child.strategy.method.is_rolling());
        if is_rolling && !parent.kind.namespaced() {
            let why = "spec.childResources: RollingRecreate and RollingInPlace need a namespaced parent, because ControllerRevisions are namespaced";
            return Err(invalid(why.into()));
        }
        let paths = spec.parent_resource.revision_history.unwrap_or_default().field_paths;
        let field_paths = if paths.is_empty() { vec!["spec".to_owned()] } else { paths };
        let hooks = self.hooks(key, spec.hooks.as_ref(), &spec.endpoint_configs, identity).await?;
        Ok(Setup {
            shape: Shape::Composite,
            finalizer: format!("metacontroller.io/compositecontroller-{}", key.name),
            generate_selector: spec.generate_selector,
            field_paths,
            resync: period(spec.resync_period_seconds),
            parents: vec![parent],
            children,
            ..self.setup(key, object, apply, hooks)
        })
    }

    async fn decorator(
        &self,
        key: &ControllerKey,
        object: &Value,
        apply: ApplyMode,
        identity: &mut Vec<String>,
    ) -> Prepared<Setup> {
        let spec: DecoratorSpec = read(object)?;
        check_decorator(&spec).map_err(invalid)?;
        let mut parents = Vec::with_capacity(spec.resources.len());
        for rule in &spec.resources {
            let mut parent = self.parent(&rule.resource, rule.label_selector.clone()).await?;
            parent.annotations = rule.annotation_selector.clone().map(|selector| selector.into_selector());
            parent.ignores_status = rule.ignore_status_changes;
            parents.push(parent);
        }
        let children = self.children(&spec.attachments).await?;
        let hooks = self.hooks(key, spec.hooks.as_ref(), &spec.endpoint_configs, identity).await?;
        Ok(Setup {
            shape: Shape::Decorator,
            finalizer: format!("metacontroller.io/decoratorcontroller-{}", key.name),
            resync: period(spec.resync_period_seconds),
            parents,
            children,
            ..self.setup(key, object, apply, hooks)
        })
    }

    /// Returns a setup without kinds.
    fn setup(&self, key: &ControllerKey, object: &Value, apply: ApplyMode, hooks: PreparedHooks) -> Setup {
        let PreparedHooks { sync, finalize, customize } = hooks;
        Setup {
            shape: Shape::Composite,
            name: key.name.clone(),
            object: object.clone(),
            parents: Vec::new(),
            children: Vec::new(),
            sync,
            finalize,
            customize,
            finalizer: String::new(),
            resync: None,
            generate_selector: false,
            field_paths: Vec::new(),
            apply,
            field_manager: self.field_manager.to_owned(),
        }
    }

    async fn parent(
        &self,
        resource: &Resource,
        labels: Option<setpoint::LabelSelector>,
    ) -> Prepared<ParentKind> {
        let kind = self.kinds.resolve(&resource.api_version, &resource.resource).await?;
        Ok(ParentKind { kind, labels, annotations: None, ignores_status: false })
    }

    async fn children(&self, rules: &[ChildRule]) -> Prepared<Vec<ChildKind>> {
        let mut children = Vec::with_capacity(rules.len());
        for rule in rules {
            let Resource { api_version, resource } = &rule.resource;
            let kind = self.kinds.resolve(api_version, resource).await?;
            children.push(ChildKind { kind, strategy: rule.update_strategy.clone() });
        }
        Ok(children)
    }

    /// A composite writes the status of its parents, which must be a subresource, so that these writes do not conflict
    /// with users' writes.
    async fn check_definition(&self, parent: &ParentKind) -> Prepared<()> {
        let kind = &parent.kind;
        let name = format!("{}.{}", kind.plural(), kind.group());
        let not = |reason: &'static str, message: String, retry| NotReady { reason, message, retry };
        let read = self.client.get(&definition_kind(), &Key::cluster(&name)).await;
        let definition: Value = match read {
            Err(error) if error.is_not_found() => {
                let why = format!("spec.parentResource: {name} is not a custom resource");
                return Err(not("ParentNotSupported", why, true));
            }
            Err(error) => {
                return Err(not("ParentNotSupported", format!("cannot read CRD {name}: {error}"), true));
            }
            Ok(definition) => definition.decode().unwrap_or_default(),
        };
        let versions = definition["spec"]["versions"].as_array().map_or(&[][..], Vec::as_slice);
        let version = versions.iter().find(|version| version["name"] == kind.version());
        match version.is_some_and(|version| version["subresources"]["status"].is_object()) {
            true => Ok(()),
            false => {
                let why = format!("ignoring, CRD {name} does not have subresource 'Status' enabled");
                Err(not("ParentNotSupported", why, true))
            }
        }
    }

    async fn hooks(
        &self,
        key: &ControllerKey,
        hooks: Option<&Hooks>,
        endpoints: &[EndpointConfig],
        identity: &mut Vec<String>,
    ) -> Prepared<PreparedHooks> {
        let hooks = hooks.cloned().unwrap_or_default();
        let mut prepared = Vec::new();
        for (name, hook) in [
            (HookName::Sync, &hooks.sync),
            (HookName::Finalize, &hooks.finalize),
            (HookName::Customize, &hooks.customize),
        ] {
            let hook = hook.as_ref().filter(|hook| hook.webhook.is_some());
            prepared.push(match hook {
                Some(hook) => Some(self.hook(key, name, hook, endpoints, identity).await?),
                None => None,
            });
        }
        let (customize, finalize) = (prepared.pop().flatten(), prepared.pop().flatten());
        let sync =
            prepared.pop().flatten().ok_or_else(|| invalid("spec.hooks.sync: expected a webhook".into()))?;
        Ok(PreparedHooks { sync, finalize, customize })
    }

    async fn hook(
        &self,
        key: &ControllerKey,
        name: HookName,
        hook: &Hook,
        endpoints: &[EndpointConfig],
        identity: &mut Vec<String>,
    ) -> Prepared<Caller> {
        let field = format!("spec.hooks.{}.webhook", name.text());
        let webhook = hook.webhook.clone().unwrap_or_default();
        let target = Credentials { client: self.client }.target(&webhook, endpoints).await;
        let target = target.map_err(|error| match error {
            CredentialError::Wrong(why) => invalid(format!("{field}.{why}")),
            CredentialError::Missing(why) => {
                NotReady { reason: "CredentialsNotFound", message: format!("{field}.{why}"), retry: true }
            }
        })?;
        identity.push(digest(&target));
        let limit = webhook.time_limit().map_err(|why| invalid(format!("{field}: {why}")))?;
        // A hook may be unknown for now, for example a child process of an operator that is being reloaded.
        let transport = self.transports.open(&target).map_err(|why| NotReady {
            reason: "HookNotReachable",
            message: format!("{field}: {why}"),
            retry: true,
        })?;
        let on_health = self.on_health.clone();
        let settings = CallerSettings {
            name,
            transport,
            labels: Labels { url: target.url, controller: key.name.clone(), controller_type: key.of.name() },
            clock: self.clock.clone(),
            metrics: self.metrics.clone(),
            on_health: Box::new(move |problem| on_health(name, problem)),
        };
        Ok(Caller::new(hook, limit, settings))
    }
}

struct PreparedHooks {
    sync: Caller,
    finalize: Option<Caller>,
    customize: Option<Caller>,
}

fn read<T: serde::de::DeserializeOwned>(object: &Value) -> Prepared<T> {
    serde_json::from_value(object["spec"].clone()).map_err(|error| invalid(format!("spec: {error}")))
}

fn period(seconds: Option<i32>) -> Option<Duration> {
    let seconds = seconds.and_then(|seconds| u64::try_from(seconds).ok())?;
    Some(Duration::from_secs(seconds.max(1)))
}

/// Returns a fingerprint of credentials.
fn digest(target: &HookTarget) -> String {
    let mut digest = ring::digest::Context::new(&ring::digest::SHA256);
    let identity = target.identity.as_ref();
    let parts = [
        Some(target.url.as_bytes()),
        target.authorities.as_deref(),
        identity.map(|(certificate, _)| certificate.as_slice()),
        identity.map(|(_, key)| key.as_slice()),
        target.authorization.as_deref().map(str::as_bytes),
    ];
    for part in parts {
        digest.update(&part.map_or(u64::MAX, |part| part.len() as u64).to_be_bytes());
        digest.update(part.unwrap_or_default());
    }
    digest.finish().as_ref().iter().map(|byte| format!("{byte:02x}")).collect()
}
