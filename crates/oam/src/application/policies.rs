//! Policies with their own definitions, whose templates render objects.

use serde_json::{Value, json};
use setpoint_cue::Instance;

use crate::apply::shape;
use crate::model::Policy;
use crate::policy::placement::Placement;
use crate::render::component::declares;
use crate::session::Session;
use crate::workflow::component::StepError;

impl Session<'_> {
    /// Renders and applies the objects of policies.
    pub(crate) async fn apply_policies(&mut self) -> Result<(), StepError> {
        for policy in self.policies.custom.clone() {
            let manifests =
                self.policy_objects(&policy).map_err(|why| format!("policy {}: {why}", policy.name))?;
            if manifests.is_empty() {
                continue;
            }
            let place = Placement::local(&self.app.namespace);
            self.dispatch(manifests, &place, "policy").await?;
        }
        Ok(())
    }

    fn policy_objects(&self, policy: &Policy) -> Result<Vec<Value>, String> {
        let definition = self.definitions.policies.get(&policy.kind);
        let definition = definition.ok_or_else(|| format!("PolicyDefinition {:?} not found", policy.kind))?;
        let source = self
            .sources
            .parse(&format!("{}.cue", policy.kind), definition.template()?)
            .map_err(|errors| errors.to_string())?;
        let parameter = if policy.properties.is_null() { json!({}) } else { policy.properties.clone() };
        let mut context = self.context.of_step("", "", "");
        context.insert("name".into(), policy.name.clone().into());
        let instance = Instance::builder()
            .source(&source)
            .packages(self.sources.packages.clone())
            .fill("parameter", &parameter)
            .fill("context", &Value::Object(context))
            .build()
            .map_err(|errors| errors.to_string())?;
        let mut objects = Vec::new();
        if declares(&instance, "output") {
            objects.push(
                instance
                    .lookup("output")
                    .and_then(|output| output.to_json())
                    .map_err(|errors| errors.to_string())?,
            );
        }
        if declares(&instance, "outputs") {
            let outputs = instance.lookup("outputs").map_err(|errors| errors.to_string())?;
            for (_, _, value) in outputs.fields() {
                objects.push(value.to_json().map_err(|errors| errors.to_string())?);
            }
        }
        for object in &mut objects {
            shape::check(object).map_err(|why| format!("output: {why}"))?;
            if object["metadata"]["name"].is_null() {
                object["metadata"]["name"] = policy.name.clone().into();
            }
            self.context.mark(object);
        }
        Ok(objects)
    }
}
