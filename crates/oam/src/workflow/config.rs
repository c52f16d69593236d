//! Configurations: Secrets with properties, in KubeVela's format.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};
use setpoint::client::PropagationPolicy;

use super::calls::Reply;
use super::component::StepError;
use super::template::Call;
use crate::apply::identity::Identity;
use crate::session::Session;

const CATALOG: &str = "config.oam.dev/catalog";
const CATALOG_NAME: &str = "velacore-config";
const TYPE: &str = "config.oam.dev/type";
/// The field that holds the properties.
const PROPERTIES: &str = "input-properties";

impl Session<'_> {
    /// Performs a call of `vela/config`.
    pub(super) async fn config(&self, action: &str, call: &Call) -> Result<Reply, StepError> {
        let params = &call.params;
        match action {
            "create" => self.create_config(params).await,
            "read" => {
                let found = self.read_config(params).await?;
                Ok(Reply::Done(json!({"config": properties(&found)?})))
            }
            "list" => self.list_configs(params).await,
            "delete" => {
                let found = self.read_config(params).await?;
                let of = self.config_identity(params).await?;
                self.local().delete(&of, &found, PropagationPolicy::Background).await?;
                Ok(Reply::Done(json!({})))
            }
            other => Err(StepError::Fail(format!("{}: config {other} is not supported", call.path))),
        }
    }

    async fn config_identity(&self, params: &Value) -> Result<Identity, StepError> {
        let secrets = self.local().kind("v1", "Secret").await?;
        Ok(Identity::of(&secrets, &json!({"metadata": params}), &self.app.namespace))
    }

    async fn create_config(&self, params: &Value) -> Result<Reply, StepError> {
        if params["template"].as_str().is_some_and(|template| !template.is_empty()) {
            return Err(StepError::Fail("templates of configurations are not supported".to_owned()));
        }
        let of = self.config_identity(params).await?;
        if self.local().get(&of).await?.is_some_and(|found| !is_config(&found)) {
            return Err(StepError::Fail(format!("{of} exists and is no configuration")));
        }
        let manifest = json!({
            "metadata": {"labels": {CATALOG: CATALOG_NAME, TYPE: ""}},
            "data": {PROPERTIES: STANDARD.encode(params["config"].to_string())},
        });
        self.local().apply(&of, &manifest).await?;
        Ok(Reply::Done(json!({})))
    }

    async fn read_config(&self, params: &Value) -> Result<Value, StepError> {
        let of = self.config_identity(params).await?;
        match self.local().get(&of).await? {
            Some(found) if is_config(&found) => Ok(found),
            _ => Err(StepError::Retry(format!("configuration {} not found", of.key))),
        }
    }

    async fn list_configs(&self, params: &Value) -> Result<Reply, StepError> {
        let secrets = self.local().kind("v1", "Secret").await?;
        // A template may be given with its namespace.
        let template = params["template"].as_str().unwrap_or_default();
        let template = template.rsplit('/').next().unwrap_or_default();
        let labels = format!("{CATALOG}={CATALOG_NAME},{TYPE}={template}");
        let found = self.local().list(&secrets, params["namespace"].as_str(), Some(labels)).await?;
        let configs: Result<Vec<Value>, String> = found
            .iter()
            .map(|found| Ok(json!({"name": found["metadata"]["name"], "config": properties(found)?})))
            .collect();
        Ok(Reply::Done(json!({"configs": configs?})))
    }
}

fn is_config(secret: &Value) -> bool {
    secret["metadata"]["labels"][CATALOG] == CATALOG_NAME
}

fn properties(secret: &Value) -> Result<Value, String> {
    let encoded = secret["data"][PROPERTIES].as_str().unwrap_or_default();
    let decoded = STANDARD.decode(encoded).map_err(|error| format!("{PROPERTIES}: {error}"))?;
    if decoded.is_empty() {
        return Ok(json!({}));
    }
    serde_json::from_slice(&decoded).map_err(|error| format!("{PROPERTIES}: {error}"))
}
