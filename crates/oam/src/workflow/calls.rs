//! The calls of step templates.

use std::collections::BTreeSet;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde::Deserialize;
use serde_json::{Map, Value, json};
use setpoint::client::PropagationPolicy;

use super::component::{Applied, StepError};
use super::engine::Running;
use super::template::Call;
use super::{duration, time};
use crate::apply::cluster::{Cluster, kind_of};
use crate::apply::identity::Identity;
use crate::apply::{paths, shape};
use crate::clusters::inventory::Inventory;
use crate::dependency::ordered;
use crate::model::{Component, Phase, Service, Spec};
use crate::names::LOCAL_CLUSTER;
use crate::policy::Policies;
use crate::policy::placement::{Placement, placed};
use crate::render::context::Place;
use crate::render::patch;
use crate::session::Session;

/// The result of a call.
#[derive(Debug)]
pub(crate) enum Reply {
    /// It is done and returns a value.
    Done(Value),
    /// The step waits.
    Wait(String),
    /// The step is suspended, until a time if one is given.
    Suspend { message: String, until: Option<jiff::Timestamp> },
    /// The step fails.
    Fail(String),
    /// The rest of the step is skipped.
    Break(String),
    /// A message for the status.
    Message(String),
}

impl Session<'_> {
    /// Performs a call of a step.
    pub(crate) async fn perform(&mut self, call: &Call, step: &Running<'_>) -> Result<Reply, StepError> {
        if self.context.of_run.is_some() && needs_application(call) {
            let what = format!("{}: {} {}", call.path, call.provider, call.action);
            return Err(StepError::Fail(format!("{what} works in an Application, not in a WorkflowRun")));
        }
        match (call.provider.as_str(), call.action.as_str()) {
            ("builtin", action) => self.builtin(action, call, step),
            ("kube", action) => self.kube(action, call).await,
            ("oam", action) => self.oam(action, call, step).await,
            ("multicluster", action) => self.multicluster(action, call).await,
            ("http", "do") => self.http(call, step.name),
            ("metrics", "prom-check") => self.check_metric(call, step.name),
            ("config", action) => self.config(action, call).await,
            ("query", "collect-service-endpoints") => {
                self.service_endpoints(&call.params["app"]).await.map(Reply::Done)
            }
            ("util", "string") => Ok(Reply::Done(json!({"str": decoded(&call.params["bt"])}))),
            ("util", "patch-k8s-object") => Ok(Reply::Done(patched(call))),
            ("time", action) => converted(action, call).map(Reply::Done).map_err(StepError::Fail),
            ("util", "log") => Ok(Reply::Done(json!({}))),
            (provider, action) => {
                Err(StepError::Fail(format!("{}: {provider} {action} is not supported", call.path)))
            }
        }
    }

    fn builtin(&mut self, action: &str, call: &Call, step: &Running<'_>) -> Result<Reply, StepError> {
        let message = call.params["message"].as_str().unwrap_or_default().to_owned();
        Ok(match action {
            "wait" if call.params["continue"] == true => Reply::Done(json!({})),
            "wait" => {
                Reply::Wait(if message.is_empty() { "wait for the condition".to_owned() } else { message })
            }
            "suspend" => return self.suspend(call, step, message),
            "fail" => Reply::Fail(message),
            "break" => Reply::Break(message),
            "message" => Reply::Message(message),
            "var" => self.variable(call).map_err(StepError::Fail)?,
            other => return Err(StepError::Fail(format!("{}: builtin {other} is not supported", call.path))),
        })
    }

    fn variable(&mut self, call: &Call) -> Result<Reply, String> {
        let path = call.params["path"].as_str().unwrap_or_default();
        if call.params["method"] == "Put" {
            self.variables.set(path.to_owned(), call.params["value"].clone())?;
            return Ok(Reply::Done(json!({})));
        }
        Ok(Reply::Done(json!({"value": self.variables.values.get(path)})))
    }

    /// A call suspends once: after it has been resumed, it is done.
    fn suspend(&mut self, call: &Call, step: &Running<'_>, message: String) -> Result<Reply, StepError> {
        let memory = format!("{}.{}", step.name, call.path);
        let resumed = step.phase == Phase::Running && step.reason == super::engine::reason::SUSPEND;
        let length = match call.params["duration"].as_str() {
            Some(text) if !text.is_empty() => Some(duration::parse(text)?),
            _ => None,
        };
        let until = length.map(|length| {
            step.started
                .saturating_add(jiff::SignedDuration::try_from(length).unwrap_or(jiff::SignedDuration::MAX))
        });
        let until = until.map(|until| until.unwrap_or(jiff::Timestamp::MAX));
        if self.variables.resumed.contains(&memory) || resumed || until.is_some_and(|until| until <= self.now)
        {
            if step.kind != super::steps::SUSPEND {
                self.variables.resumed.insert(memory);
            }
            return Ok(Reply::Done(json!({})));
        }
        let message = if message.is_empty() { format!("Suspended by field {}", call.path) } else { message };
        Ok(Reply::Suspend { message, until })
    }

    async fn kube(&mut self, action: &str, call: &Call) -> Result<Reply, StepError> {
        let params = &call.params;
        let place = self.placement(&json!({"cluster": params["cluster"]})).await?;
        let cluster = self.clusters.get(&place.cluster)?;
        match action {
            "apply" => {
                let live = self.apply_all(vec![params["value"].clone()], &place).await?;
                let value = overlaid(live.into_iter().next().unwrap_or_default(), &params["value"]);
                Ok(Reply::Done(json!({"value": value})))
            }
            "apply-in-parallel" => {
                let manifests = params["value"].as_array().cloned().unwrap_or_default();
                let live = self.apply_all(manifests, &place).await?;
                Ok(Reply::Done(json!({"value": live})))
            }
            "patch" => self.patch_object(&cluster, params).await,
            "read" => self.read(&cluster, params).await,
            "list" => list(&cluster, params).await,
            "delete" => self.delete(&cluster, params).await,
            other => Err(StepError::Fail(format!("{}: kube {other} is not supported", call.path))),
        }
    }

    async fn apply_all(&mut self, manifests: Vec<Value>, place: &Placement) -> Result<Vec<Value>, StepError> {
        let mut marked = manifests;
        for manifest in &mut marked {
            shape::check(manifest).map_err(|why| StepError::Fail(format!("value: {why}")))?;
            self.context.mark(manifest);
        }
        Ok(self.dispatch(marked, place, "workflow").await?)
    }

    async fn identity(&self, cluster: &Cluster, manifest: &Value) -> Result<Identity, StepError> {
        let (api_version, kind) = kind_of(manifest);
        let kind = cluster.kind(api_version, kind).await?;
        Ok(Identity::of(&kind, manifest, &self.app.namespace))
    }

    async fn read(&self, cluster: &Cluster, params: &Value) -> Result<Reply, StepError> {
        let identity = self.identity(cluster, &params["value"]).await?;
        Ok(Reply::Done(match cluster.get(&identity).await? {
            Some(object) => json!({"value": object}),
            None => json!({"err": format!("{} {:?} not found", identity.kind.plural(), identity.key.name())}),
        }))
    }

    async fn patch_object(&mut self, cluster: &Cluster, params: &Value) -> Result<Reply, StepError> {
        let identity = self.identity(cluster, &params["value"]).await?;
        let Some(live) = cluster.get(&identity).await? else {
            return Err(StepError::Retry(format!("{identity} not found")));
        };
        let patched =
            cluster.merge(&identity, &live["metadata"]["resourceVersion"], &params["patch"]).await?;
        Ok(Reply::Done(json!({"value": patched})))
    }

    async fn delete(&self, cluster: &Cluster, params: &Value) -> Result<Reply, StepError> {
        let filter = &params["filter"];
        let named = params["value"]["metadata"]["name"].as_str().is_some_and(|name| !name.is_empty());
        let selector = selector(filter).filter(|selector| !selector.is_empty());
        if !named && selector.is_none() {
            // Without either, this would delete every object of the kind.
            return Err(StepError::Fail(
                "delete: expected a name in value.metadata or labels in filter.matchingLabels".into(),
            ));
        }
        let identity = self.identity(cluster, &params["value"]).await?;
        // Labels take precedence over a name, as in KubeVela.
        let found = match selector.is_none() {
            true => cluster.get(&identity).await?.into_iter().collect(),
            false => {
                let namespace = filter["namespace"].as_str().or(identity.namespace());
                cluster.list(&identity.kind, namespace, selector).await?
            }
        };
        for live in found {
            let of = Identity::of(&identity.kind, &live, &self.app.namespace);
            cluster.delete(&of, &live, PropagationPolicy::Background).await?;
        }
        Ok(Reply::Done(json!({})))
    }

    async fn oam(&mut self, action: &str, call: &Call, step: &Running<'_>) -> Result<Reply, StepError> {
        let params = &call.params;
        match action {
            "apply-component" => self.apply_named(call, step).await,
            "render-component" => self.render_named(call, step).await,
            "apply-all" => {
                let exceptions = names_in(&params["exceptions"]);
                let all =
                    self.spec.components.iter().filter(|component| !exceptions.contains(&component.name));
                let mut components: Vec<Component> = all.cloned().collect();
                let in_parallel = params["waitHealthy"] == false;
                if in_parallel {
                    components.iter_mut().for_each(|component| component.depends_on.clear());
                }
                let here = vec![Placement::local(&self.app.namespace)];
                match self.deploy(components, here).await? {
                    Reply::Wait(_) if in_parallel => Ok(Reply::Done(json!({}))),
                    reply => Ok(reply),
                }
            }
            "load" => {
                let spec = self.spec_of(params).await?;
                let all = spec.components.iter().map(|component| (component.name.clone(), json!(component)));
                Ok(Reply::Done(json!({"value": Value::Object(all.collect::<Map<_, _>>())})))
            }
            "load-in-order" => {
                Ok(Reply::Done(json!({"value": json!(self.spec_of(params).await?.components)})))
            }
            "load-policies" => {
                let spec = self.spec_of(params).await?;
                let all = spec.policies.iter().map(|policy| (policy.name.clone(), json!(policy)));
                Ok(Reply::Done(json!({"value": Value::Object(all.collect::<Map<_, _>>())})))
            }
            other => Err(StepError::Fail(format!("{}: oam {other} is not supported", call.path))),
        }
    }

    /// Returns the spec of the application, or of another one in its namespace that the call names.
    async fn spec_of(&self, params: &Value) -> Result<Spec, StepError> {
        let Some(name) = params["app"].as_str().filter(|name| !name.is_empty() && *name != self.app.name)
        else {
            return Ok(self.spec.clone());
        };
        let apps = self.local().kind("core.oam.dev/v1beta1", "Application").await?;
        let of = Identity::of(&apps, &json!({"metadata": {"name": name}}), &self.app.namespace);
        let found =
            self.local().get(&of).await?.ok_or_else(|| StepError::Retry(format!("{of} not found")))?;
        Spec::deserialize(&found["spec"]).map_err(|why| StepError::Fail(format!("{of}: {why}")))
    }

    /// Returns the component that a call names or contains, with the step's inputs.
    fn component(&self, params: &Value, step: &Running<'_>) -> Result<Component, StepError> {
        let given = if params["value"].is_null() { &params["component"] } else { &params["value"] };
        let mut component =
            match given.as_str() {
                Some(name) => {
                    self.spec.components.iter().find(|component| component.name == name).cloned().ok_or_else(
                        || StepError::Fail(format!("component {name} not found in application")),
                    )?
                }
                None => serde_json::from_value(given.clone())
                    .map_err(|error| StepError::Fail(format!("component: {error}")))?,
            };
        fill_inputs(&mut component, &step.inputs)?;
        Ok(component)
    }

    async fn placement(&self, params: &Value) -> Result<Placement, StepError> {
        let namespace = params["namespace"].as_str().filter(|text| !text.is_empty());
        let namespace = namespace.unwrap_or(&self.app.namespace);
        match params["cluster"].as_str().unwrap_or_default() {
            "" | LOCAL_CLUSTER => Ok(Placement::local(namespace)),
            cluster => Ok(placed(cluster, namespace, &self.clusters.inventory().await?)?),
        }
    }

    /// Returns the placements of the named topologies.
    async fn placements(&self, policies: &Policies, named: &[String]) -> Result<Vec<Placement>, StepError> {
        let clusters = match policies.topologies.is_empty() {
            true => Inventory::unknown(),
            false => self.clusters.inventory().await?,
        };
        Ok(policies.placements(named, &self.app.namespace, &clusters)?)
    }

    async fn apply_named(&mut self, call: &Call, step: &Running<'_>) -> Result<Reply, StepError> {
        let params = &call.params;
        let (component, place) = (self.component(params, step)?, self.placement(params).await?);
        let applied = self.apply_component(&component, &place, call.patch.as_ref()).await?;
        if !applied.healthy && params["waitHealthy"] != false {
            return Ok(Reply::Wait(applied.message));
        }
        Ok(Reply::Done(json!({"output": applied.output, "outputs": applied.outputs})))
    }

    async fn render_named(&mut self, call: &Call, step: &Running<'_>) -> Result<Reply, StepError> {
        let params = &call.params;
        let (component, place) = (self.component(params, step)?, self.placement(params).await?);
        let at = Place {
            component: &component.name,
            component_type: &component.kind,
            namespace: &place.namespace,
            cluster: &place.cluster,
            ..Place::default()
        };
        self.complete(&component);
        let rendered = self.renderer().render_patched(&component, &at, call.patch.as_ref())?;
        let outputs: Map<String, Value> =
            rendered.others.into_iter().map(|other| (other.key, other.object)).collect();
        Ok(Reply::Done(json!({"output": rendered.output, "outputs": outputs})))
    }

    async fn multicluster(&mut self, action: &str, call: &Call) -> Result<Reply, StepError> {
        let params = &call.params;
        let named = names_in(&params["policies"]);
        match action {
            "deploy" => {
                self.check_policies(&named)?;
                let policies = self.with_inline(&params["inlinePolicies"])?;
                let named = match params["inlinePolicies"].as_array() {
                    Some(inline) => named
                        .into_iter()
                        .chain(inline.iter().filter_map(|policy| policy["name"].as_str().map(str::to_owned)))
                        .collect(),
                    None => named,
                };
                let places = self.placements(&policies, &named).await?;
                let components = policies.overridden(&named, &self.spec.components);
                self.deploy(components, places).await
            }
            "list-clusters" => {
                let clusters = self.clusters.inventory().await?;
                Ok(Reply::Done(json!({"outputs": {"clusters": clusters.members()}})))
            }
            "placements" => {
                let places = self.placements(&self.policies, &named).await?;
                let places: Vec<Value> = places
                    .iter()
                    .map(|place| json!({"cluster": place.cluster, "namespace": place.namespace}))
                    .collect();
                Ok(Reply::Done(json!({"placements": places})))
            }
            other => Err(StepError::Fail(format!("{}: multicluster {other} is not supported", call.path))),
        }
    }

    fn check_policies(&self, named: &[String]) -> Result<(), StepError> {
        let known = |name: &&String| {
            self.policies.topologies.iter().any(|(known, _)| known == *name)
                || self.policies.overrides.iter().any(|(known, _)| known == *name)
                || self.policies.replications.iter().any(|(known, _)| known == *name)
                || self.spec.policies.iter().any(|policy| policy.name == **name)
        };
        match named.iter().find(|name| !known(name)) {
            Some(name) => Err(StepError::Retry(format!("policy {name} not found"))),
            None => Ok(()),
        }
    }

    fn with_inline(&self, inline: &Value) -> Result<Policies, StepError> {
        let Some(inline) = inline.as_array().filter(|inline| !inline.is_empty()) else {
            return Ok(self.policies.clone());
        };
        let mut all = self.spec.policies.clone();
        for policy in inline {
            all.push(
                serde_json::from_value(policy.clone()).map_err(|error| format!("inlinePolicies: {error}"))?,
            );
        }
        Ok(Policies::parse(&all)?)
    }

    /// Applies components at all placements. An error at one does not stop the others.
    async fn deploy(
        &mut self,
        components: Vec<Component>,
        places: Vec<Placement>,
    ) -> Result<Reply, StepError> {
        let (mut waiting, mut failed) = (Vec::new(), None);
        for place in &places {
            match self.deploy_at(&components, place).await {
                Ok(more) => waiting.extend(more),
                Err(StepError::Unreachable(why)) => {
                    self.lose_sight(place, &why);
                    waiting.push(why);
                }
                Err(error) => failed = failed.or(Some(error)),
            }
        }
        match failed {
            Some(error) => Err(error),
            None if waiting.is_empty() => Ok(Reply::Done(json!({}))),
            None => Ok(Reply::Wait(waiting.join("; "))),
        }
    }

    /// Records that the services of a placement cannot be read.
    fn lose_sight(&mut self, place: &Placement, why: &str) {
        let is_there =
            |service: &&mut Service| service.cluster == place.cluster && service.namespace == place.namespace;
        for service in self.services.iter_mut().filter(is_there) {
            (service.healthy, service.message) = (false, why.to_owned());
        }
    }

    /// Applies components at a placement, after their dependencies. Returns what they wait for.
    async fn deploy_at(
        &mut self,
        components: &[Component],
        place: &Placement,
    ) -> Result<Vec<String>, StepError> {
        let names: BTreeSet<&str> = components.iter().map(|component| component.name.as_str()).collect();
        let order = ordered(components, |component| &component.name, |component| &component.depends_on);
        let (mut waiting, mut healthy) = (Vec::new(), BTreeSet::new());
        for component in order.sorted.iter().chain(&order.cyclic).copied() {
            let blocked = component
                .depends_on
                .iter()
                .find(|name| names.contains(name.as_str()) && !healthy.contains(name.as_str()));
            if let Some(name) = blocked {
                waiting.push(format!("component {} waits for {name}", component.name));
                continue;
            }
            match self.deploy_one(component, place).await? {
                Ok(()) => {
                    healthy.insert(component.name.as_str());
                }
                Err(why) => waiting.push(why),
            }
        }
        Ok(waiting)
    }

    /// Applies a component with its inputs. The inner error is what it waits for.
    async fn deploy_one(
        &mut self,
        component: &Component,
        place: &Placement,
    ) -> Result<Result<(), String>, StepError> {
        let mut component = component.clone();
        let mut inputs = Vec::new();
        for input in &component.inputs {
            match self.variables.values.get(&input.from) {
                Some(value) => inputs.push((input.parameter_key.clone(), value.clone())),
                None => return Ok(Err(format!("Pending on Input: {}", input.from))),
            }
        }
        fill_inputs(&mut component, &inputs)?;
        let applied = self.apply_component(&component, place, None).await?;
        if !applied.healthy {
            return Ok(Err(applied.message));
        }
        self.component_outputs(&component, &applied)?;
        Ok(Ok(()))
    }

    /// Sets the output variables of a component.
    fn component_outputs(&mut self, component: &Component, applied: &Applied) -> Result<(), StepError> {
        for output in &component.outputs {
            let data = json!({"output": applied.output, "outputs": applied.outputs, "context": {"name": component.name}});
            let value = super::engine::value_of(&data, &output.value_from)
                .map_err(|why| format!("component {}: output {}: {why}", component.name, output.name))?;
            self.variables.set(output.name.clone(), value).map_err(StepError::Fail)?;
        }
        Ok(())
    }
}

/// Sets inputs at paths of a component: in its properties, unless the path says otherwise.
fn fill_inputs(component: &mut Component, inputs: &[(String, Value)]) -> Result<(), String> {
    for (path, value) in inputs.iter().filter(|(path, _)| !path.is_empty()) {
        let full = match path.starts_with("properties.") || path.starts_with("traits[") {
            true => path.clone(),
            false => format!("properties.{path}"),
        };
        let mut whole = json!(component);
        paths::set(&mut whole, &full, value.clone()).map_err(|why| format!("input {path}: {why}"))?;
        *component = serde_json::from_value(whole).map_err(|error| format!("input {path}: {error}"))?;
    }
    Ok(())
}

/// Returns whether a call concerns the components or policies of an application.
fn needs_application(call: &Call) -> bool {
    call.provider == "oam" || (call.provider == "multicluster" && call.action != "list-clusters")
}

fn names_in(list: &Value) -> Vec<String> {
    list.as_array().into_iter().flatten().filter_map(Value::as_str).map(str::to_owned).collect()
}

async fn list(cluster: &Cluster, params: &Value) -> Result<Reply, StepError> {
    let (api_version, kind) = kind_of(&params["resource"]);
    let kind = cluster.kind(api_version, kind).await?;
    let namespace = params["filter"]["namespace"].as_str().filter(|text| !text.is_empty());
    let items = cluster.list(&kind, namespace, selector(&params["filter"])).await?;
    Ok(Reply::Done(json!({"list": {"items": items}})))
}

fn selector(filter: &Value) -> Option<String> {
    let labels = filter["matchingLabels"].as_object()?;
    let terms = labels.iter().map(|(name, value)| format!("{name}={}", value.as_str().unwrap_or_default()));
    Some(terms.collect::<Vec<_>>().join(","))
}

/// Patches a value, with patch strategies. Errors are returned to the template.
fn patched(call: &Call) -> Value {
    let mut value = call.params["value"].clone();
    match call.patch.as_ref().map_or(Ok(()), |given| patch::apply(&mut value, given)) {
        Ok(()) => json!({"result": value}),
        Err(why) => json!({"err": why}),
    }
}

/// Converts a date to a timestamp, or back.
fn converted(action: &str, call: &Call) -> Result<Value, String> {
    let text = |name: &str| call.params[name].as_str().unwrap_or_default();
    match action {
        "timestamp" => Ok(json!({"timestamp": time::timestamp(text("date"), text("layout"))?})),
        "date" => {
            let timestamp = call.params["timestamp"].as_i64().unwrap_or_default();
            Ok(json!({"date": time::date(timestamp, text("layout"))?}))
        }
        other => Err(format!("{}: time {other} is not supported", call.path)),
    }
}

/// Bytes are base64 in JSON.
fn decoded(bytes: &Value) -> String {
    let text = bytes.as_str().unwrap_or_default();
    let bytes = STANDARD.decode(text).ok().and_then(|bytes| String::from_utf8(bytes).ok());
    bytes.unwrap_or_else(|| text.to_owned())
}

/// Returns a live object with the template's values: the server may normalize them, and the template would conflict
/// with itself.
fn overlaid(mut live: Value, given: &Value) -> Value {
    match (&mut live, given) {
        (Value::Object(live), Value::Object(given)) => {
            for (name, value) in given {
                let merged = overlaid(live.remove(name).unwrap_or_default(), value);
                live.insert(name.clone(), merged);
            }
        }
        (Value::Array(live), Value::Array(given)) if live.len() == given.len() => {
            for (item, given) in live.iter_mut().zip(given) {
                *item = overlaid(std::mem::take(item), given);
            }
        }
        _ => return given.clone(),
    }
    live
}
