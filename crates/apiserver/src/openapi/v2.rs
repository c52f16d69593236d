//! OpenAPI version 2, for clients that know no other: the definitions of all kinds, without endpoints.

use std::sync::Arc;

use serde_json::{Value, json};

use crate::registry::Served;

use super::custom;
use super::schemas::{self, Dialect};

pub(super) fn document<'a>(kinds: impl Iterator<Item = &'a Arc<Served>> + Clone) -> Value {
    let mut definitions = schemas::described(Dialect::V2, &schemas::roots(kinds.clone()));
    definitions.extend(kinds.flat_map(|served| custom::described(Dialect::V2, &served.kind)));
    json!({
        "swagger": "2.0",
        "info": {"title": "Kubernetes", "version": "v1.34.0"},
        "paths": {},
        "definitions": definitions,
        "securityDefinitions": {"BearerToken": {
            "type": "apiKey",
            "description": "Bearer Token authentication",
            "name": "authorization",
            "in": "header",
        }},
    })
}
