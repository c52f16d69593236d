//! Conversion by webhook: when objects need it, and how it fails.
//!
//! This server does not call conversion webhooks. Requests that convert nothing still work: an empty list, a missing
//! object, a watch without events.

use serde_json::Value;
use setpoint_store::ListOptions;

use crate::json::Json;
use crate::kind::{Kind, Verb};
use crate::rest::{self, Call};
use crate::status::Status;

/// The webhook that converts the objects of a definition.
pub(crate) struct ConversionWebhook {
    url: String,
    /// Namespace and name of the service that answers.
    service: Option<(String, String)>,
}

impl ConversionWebhook {
    /// The webhook of a definition's `spec.conversion`, if it names one.
    pub(super) fn of(conversion: &Value) -> Option<Self> {
        if conversion.text("strategy") != "Webhook" {
            return None;
        }
        let client = conversion.at("webhook").at("clientConfig");
        if !client.has("service") {
            return Some(Self { url: client.text("url").to_owned(), service: None });
        }
        let service = client.at("service");
        let (namespace, name) = (service.text("namespace"), service.text("name"));
        let port = service.int("port").unwrap_or(443);
        let path = service.text("path").trim_start_matches('/');
        let url = format!("https://{name}.{namespace}.svc:{port}/{path}");
        Some(Self { url, service: Some((namespace.to_owned(), name.to_owned())) })
    }
}

/// The error for an object that only a conversion webhook could convert.
pub(crate) fn unconvertible(kind: &Kind) -> Status {
    Status::internal(format_args!(
        "conversion webhook for {}, Kind={} failed: this server calls no conversion webhooks; use the storage version",
        kind.api_version(),
        kind.kind
    ))
}

/// Refuses a call that would have to convert an object by webhook.
pub(crate) async fn refuse(call: &Call<'_>, verb: Verb) -> Result<(), Status> {
    let kind = &call.served.kind;
    let Some(custom) = kind.custom.as_ref().filter(|custom| custom.needs_webhook()) else { return Ok(()) };
    let from = match verb {
        // Events that cannot be converted are left out.
        Verb::Watch => return Ok(()),
        Verb::Create => kind.api_version(),
        Verb::Patch if rest::is_apply(call) && !has_object(call).await? => kind.api_version(),
        Verb::List | Verb::DeleteCollection if !has_objects(call).await? => return Ok(()),
        Verb::Get | Verb::Update | Verb::Patch | Verb::Delete if !has_object(call).await? => return Ok(()),
        _ => custom.storage_api_version().to_owned(),
    };
    let Some(webhook) = &custom.webhook else { return Ok(()) };
    let why = reason(call, webhook).await?;
    Err(Status::unknown(format!(
        "conversion webhook for {from}, Kind={} failed: Post \"{}?timeout=30s\": {why}",
        kind.kind, webhook.url
    )))
}

async fn has_object(call: &Call<'_>) -> Result<bool, Status> {
    let found = call.server.store.get(&call.key()?, None).await;
    found.map(|found| found.is_some()).map_err(|why| call.server.refusal(why))
}

async fn has_objects(call: &Call<'_>) -> Result<bool, Status> {
    let options = ListOptions { limit: 1, ..ListOptions::default() };
    let page = call.server.store.list(&call.served.range(call.namespace), options).await;
    page.map(|page| !page.records.is_empty()).map_err(|why| call.server.refusal(why))
}

async fn reason(call: &Call<'_>, webhook: &ConversionWebhook) -> Result<String, Status> {
    let registry = call.server.registry.snapshot();
    if let Some((namespace, name)) = &webhook.service
        && let Some(services) = registry.resource("", "v1", "services")
    {
        let found = call.server.store.get(&services.key(Some(namespace), name), None).await;
        if found.map_err(|why| call.server.refusal(why))?.is_none() {
            return Ok(format!("service {name:?} not found"));
        }
    }
    Ok("this server calls no conversion webhooks; use the storage version".to_owned())
}
