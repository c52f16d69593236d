//! OpenAPI version 2, for clients that know no other: the definitions of all kinds, without endpoints.

use std::sync::Arc;

use serde_json::{Value, json};

use crate::registry::Served;

use super::schemas::{self, Dialect};

pub(super) fn document<'a>(kinds: impl Iterator<Item = &'a Arc<Served>>) -> Value {
    json!({
        "swagger": "2.0",
        "info": {"title": "Kubernetes", "version": "v1.34.0"},
        "paths": {},
        "definitions": schemas::described(Dialect::V2, &schemas::roots(kinds)),
        "securityDefinitions": {"BearerToken": {
            "type": "apiKey",
            "description": "Bearer Token authentication",
            "name": "authorization",
            "in": "header",
        }},
    })
}
