//! What is wrong with an object, beyond its schema and the metadata rules that hold for every kind.

use serde_json::Value;

use crate::field::Errors;
use crate::kind::Subresource;

/// The checks of a kind. By default nothing is wrong.
pub trait Validation: Send + Sync + 'static {
    /// Checks a new object.
    fn validate(&self, object: &Value) -> Errors {
        let _ = object;
        Errors::default()
    }

    /// Checks a change; includes what [`validate`](Self::validate) finds where v1.34 does so.
    fn validate_update(&self, new: &Value, old: &Value) -> Errors {
        let _ = old;
        self.validate(new)
    }

    /// Checks a change made through the status endpoint.
    fn validate_status_update(&self, new: &Value, old: &Value) -> Errors {
        let _ = (new, old);
        Errors::default()
    }

    /// Checks a change made through an endpoint of its own (`status`, `finalize`, `ephemeralcontainers`, `resize`).
    fn validate_subresource_update(&self, subresource: Subresource, new: &Value, old: &Value) -> Errors {
        match subresource {
            Subresource::Status => self.validate_status_update(new, old),
            _ => self.validate_update(new, old),
        }
    }

    /// Checks a change made at an endpoint. What was wrong before and stays so is tolerated, with a warning.
    fn validate_change(
        &self,
        subresource: Option<Subresource>,
        new: &Value,
        old: &Value,
        warnings: &mut Vec<String>,
    ) -> Errors {
        let _ = warnings;
        match subresource {
            None | Some(Subresource::Scale) => self.validate_update(new, old),
            Some(subresource) => self.validate_subresource_update(subresource, new, old),
        }
    }

    /// Warnings for the client about a valid object.
    fn warnings(&self, new: &Value, old: Option<&Value>) -> Vec<String> {
        let _ = (new, old);
        Vec::new()
    }
}
