//! Conversion webhooks of a test, and fault injection for their calls.

use std::sync::Arc;

use serde_json::Value;
use setpoint_cluster::webhooks::{self, InProcess};

use crate::faults::{Faults, OnConversion};

/// Converts an object to an API version.
type Convert = Arc<dyn Fn(Value, &str) -> Result<Value, String> + Send + Sync>;

/// A conversion webhook: a function of the test.
#[derive(Clone)]
pub(crate) struct Converter {
    pub(crate) host: String,
    pub(crate) path: String,
    pub(crate) convert: Convert,
}

impl Converter {
    /// Serves the webhook in this network.
    pub(crate) fn serve(self, network: &InProcess, faults: &Faults) {
        let faults = faults.clone();
        network.handle_with(&self.host, &self.path, move |review| {
            let (fault, convert) = (faults.on_conversion(), self.convert.clone());
            async move {
                match fault {
                    Some(OnConversion::Drop) => return None,
                    Some(OnConversion::Fail(code)) => {
                        return Some(webhooks::json_response(code, &Value::Null));
                    }
                    Some(OnConversion::Delay(pause)) => tokio::time::sleep(pause).await,
                    None => {}
                }
                Some(webhooks::json_response(200, &webhooks::convert(&review, &*convert)))
            }
        });
    }
}
