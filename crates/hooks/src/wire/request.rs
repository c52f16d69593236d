//! The requests to hooks.

use serde_json::{Value, json};

use super::answer::Shape;
use super::objects::Objects;
use crate::model::HookVersion;

/// The request to a sync or finalize hook.
pub(crate) struct SyncRequest<'a> {
    pub(crate) controller: &'a Value,
    pub(crate) parent: &'a Value,
    pub(crate) children: &'a Objects,
    pub(crate) related: &'a Objects,
    pub(crate) finalizing: bool,
}

/// The request to a customize hook.
pub(crate) struct CustomizeRequest<'a> {
    pub(crate) controller: &'a Value,
    pub(crate) parent: &'a Value,
}

impl SyncRequest<'_> {
    pub(crate) fn encode(&self, shape: Shape, version: HookVersion) -> Value {
        let namespace = self.parent["metadata"]["namespace"].as_str().filter(|name| !name.is_empty());
        let children = self.children.encode(version, namespace);
        let related = self.related.encode(version, namespace);
        let Self { controller, parent, finalizing, .. } = self;
        match shape {
            Shape::Composite => json!({
                "controller": controller, "parent": parent, "children": children, "related": related,
                "finalizing": finalizing,
            }),
            Shape::Decorator => json!({
                "controller": controller, "object": parent, "attachments": children, "related": related,
                "finalizing": finalizing,
            }),
        }
    }
}

impl CustomizeRequest<'_> {
    pub(crate) fn encode(&self) -> Value {
        json!({"controller": self.controller, "parent": self.parent})
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn composites_have_children_and_decorators_attachments() {
        let (controller, parent) = (json!({"c": 1}), json!({"metadata": {"namespace": "shop"}}));
        let none = Objects::default();
        let request = SyncRequest {
            controller: &controller,
            parent: &parent,
            children: &none,
            related: &none,
            finalizing: true,
        };
        assert_eq!(
            request.encode(Shape::Composite, HookVersion::V1),
            json!({"controller": controller, "parent": parent, "children": {}, "related": {}, "finalizing": true})
        );
        assert_eq!(
            request.encode(Shape::Decorator, HookVersion::V2),
            json!({"controller": controller, "object": parent, "attachments": {}, "related": {}, "finalizing": true})
        );
    }
}
