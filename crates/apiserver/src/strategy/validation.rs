//! Validation of objects, beyond their schema and the metadata rules that apply to every kind.

use serde_json::Value;

use crate::field::Errors;
use crate::kind::Subresource;

/// The validation of a kind. By default everything is valid.
pub trait Validation: Send + Sync + 'static {
    /// Validates a new object.
    fn validate(&self, object: &Value) -> Errors {
        let _ = object;
        Errors::default()
    }

    /// Validates an update; includes the errors of [`validate`](Self::validate) if v1.34 does so.
    fn validate_update(&self, new: &Value, old: &Value) -> Errors {
        let _ = old;
        self.validate(new)
    }

    /// Validates an update of the status subresource.
    fn validate_status_update(&self, new: &Value, old: &Value) -> Errors {
        let _ = (new, old);
        Errors::default()
    }

    /// Validates a subresource update (`status`, `finalize`, `ephemeralcontainers`, `resize`).
    fn validate_subresource_update(&self, subresource: Subresource, new: &Value, old: &Value) -> Errors {
        match subresource {
            Subresource::Status => self.validate_status_update(new, old),
            _ => self.validate_update(new, old),
        }
    }

    /// Validates a change at an endpoint. Existing errors that stay are tolerated, with a warning.
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

    /// Returns warnings for the client about a valid object.
    fn warnings(&self, new: &Value, old: Option<&Value>) -> Vec<String> {
        let _ = (new, old);
        Vec::new()
    }
}
