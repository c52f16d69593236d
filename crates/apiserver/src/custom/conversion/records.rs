//! Records in the version of a kind: which ones a webhook has to convert, and how.

use serde_json::Value;
use setpoint_store::{Payload, Record};

use crate::apply::ManagedFields;
use crate::json::JsonMut;
use crate::registry::Served;
use crate::status::Status;

impl Served {
    /// Whether a webhook converts between the versions of this kind.
    pub(crate) fn is_converted_by_webhook(&self) -> bool {
        self.kind.custom.as_ref().is_some_and(|custom| custom.webhook.is_some())
    }

    /// Whether a webhook converts objects of this version when they are stored.
    pub(crate) fn is_converted_on_write(&self) -> bool {
        let custom = self.kind.custom.as_ref();
        custom.is_some_and(|custom| custom.webhook.is_some() && !custom.is_stored_in_this_version())
    }

    /// Whether a webhook has to convert a record to this version. A record that cannot be decrypted is an error for its
    /// reader.
    pub(crate) fn needs_conversion(&self, record: &Record) -> bool {
        let custom = self.kind.custom.as_ref().filter(|custom| custom.webhook.is_some());
        custom.is_some_and(|custom| !custom.is_version_of(record) && record.unreadable().is_none())
    }

    /// Returns a stored object as v1.34 sends it to a webhook: in the form of its version's current schema, with its
    /// managed fields, and without its revision.
    pub(super) fn to_convert(&self, record: &Record) -> Result<Value, Status> {
        let mut object: Value = serde_json::from_slice(&record.value)
            .map_err(|why| Status::internal(format_args!("cannot decode {}: {why}", record.key)))?;
        object.object_mut("metadata").unset("resourceVersion");
        if let Some(custom) = &self.kind.custom {
            custom.settle_read(&mut object).map_err(Status::unknown)?;
        }
        Ok(ManagedFields::of(record).inside(object))
    }

    /// Returns a record with a converted object in place of the stored one.
    pub(super) fn converted_record(&self, record: &Record, mut object: Value) -> Result<Record, Status> {
        ManagedFields::discard(&mut object);
        if let Some(custom) = &self.kind.custom {
            custom.settle_converted(&mut object).map_err(super::invalid)?;
        }
        let inset = ManagedFields::of(record).inset().clone();
        let payload = Payload { inset, ..self.encode_shown(&object) };
        Ok(Record::new(record.key.clone(), payload, record.created, record.modified, record.expires))
    }
}
