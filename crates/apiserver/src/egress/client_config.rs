//! The `clientConfig` of webhooks configured by API objects.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::Value;
use setpoint_webhook::{ClientConfig, Location, ServiceReference};

use crate::json::Json;

/// The API's default, for configurations that were stored without it.
const HTTPS: u16 = 443;

/// Reads a `clientConfig` that has passed validation.
pub(crate) fn client_config(config: &Value) -> ClientConfig {
    let service = config.at("service");
    let place = match service.is_null() {
        true => Location::Url(config.text("url").to_owned()),
        false => {
            let port = service.int("port").and_then(|port| u16::try_from(port).ok());
            let reference = ServiceReference {
                namespace: service.text("namespace").to_owned(),
                name: service.text("name").to_owned(),
                port: port.unwrap_or(HTTPS),
            };
            Location::Service { service: reference, path: service.text("path").to_owned() }
        }
    };
    // Validation only accepts base64.
    let ca_bundle = STANDARD.decode(config.text("caBundle")).unwrap_or_default();
    ClientConfig { place, ca_bundle }
}
