//! Objects in messages. v1.34 prints most of them as declared by its Go types: all fields under their Go names, in
//! order, set or not.

mod types;

use serde_json::{Map, Value};

pub(crate) use types::pretty;

/// A field as declared, and its value when unset.
pub(crate) struct Field {
    name: &'static str,
    zero: Zero,
}

enum Zero {
    /// Pointers, lists and maps.
    Null,
    Text,
    Number,
    Flag,
    /// A struct that is always present.
    Struct(&'static [Field]),
    /// A struct behind a pointer.
    Pointer(&'static [Field]),
    /// A list of structs.
    List(&'static [Field]),
}

const fn null(name: &'static str) -> Field {
    Field { name, zero: Zero::Null }
}

const fn text(name: &'static str) -> Field {
    Field { name, zero: Zero::Text }
}

pub(crate) static TAINT: [Field; 4] = [text("Key"), text("Value"), text("Effect"), null("TimeAdded")];
pub(crate) static SECURITY_CONTEXT: [Field; 12] = [
    null("Capabilities"),
    null("Privileged"),
    null("SELinuxOptions"),
    null("WindowsOptions"),
    null("RunAsUser"),
    null("RunAsGroup"),
    null("RunAsNonRoot"),
    null("ReadOnlyRootFilesystem"),
    null("AllowPrivilegeEscalation"),
    null("ProcMount"),
    null("SeccompProfile"),
    null("AppArmorProfile"),
];
/// The update strategy of Deployments and DaemonSets.
pub(crate) static ROLLOUT: [Field; 2] =
    [text("Type"), Field { name: "RollingUpdate", zero: Zero::Pointer(&SURGING) }];
static SURGING: [Field; 2] =
    [Field { name: "MaxUnavailable", zero: Zero::Number }, Field { name: "MaxSurge", zero: Zero::Number }];
/// The update strategy of StatefulSets.
pub(crate) static PARTITIONED_ROLLOUT: [Field; 2] =
    [text("Type"), Field { name: "RollingUpdate", zero: Zero::Pointer(&PARTITION) }];
pub(crate) static PARTITION: [Field; 2] =
    [Field { name: "Partition", zero: Zero::Number }, null("MaxUnavailable")];
pub(crate) static DISRUPTION_BUDGET: [Field; 4] =
    [null("MinAvailable"), null("Selector"), null("MaxUnavailable"), null("UnhealthyPodEvictionPolicy")];
pub(crate) static SUCCESS_POLICY: [Field; 1] = [Field { name: "Rules", zero: Zero::List(&SUCCESS_RULE) }];
static SUCCESS_RULE: [Field; 2] = [null("SucceededIndexes"), null("SucceededCount")];
pub(crate) static SCOPE_SELECTOR: [Field; 1] =
    [Field { name: "MatchExpressions", zero: Zero::List(&SCOPE_REQUIREMENT) }];
static SCOPE_REQUIREMENT: [Field; 3] = [text("ScopeName"), text("Operator"), null("Values")];
pub(crate) static VOLUME_ATTACHMENT: [Field; 3] =
    [text("Attacher"), Field { name: "Source", zero: Zero::Struct(&ATTACHED) }, text("NodeName")];
static ATTACHED: [Field; 2] = [null("PersistentVolumeName"), null("InlineVolumeSpec")];
pub(crate) static NON_RESOURCE_ATTRIBUTES: [Field; 2] = [text("Path"), text("Verb")];
pub(crate) static TOLERATION: [Field; 5] =
    [text("Key"), text("Operator"), text("Value"), text("Effect"), null("TolerationSeconds")];
pub(crate) static POD_CLAIM: [Field; 3] =
    [text("Name"), null("ResourceClaimName"), null("ResourceClaimTemplateName")];
pub(crate) static SECCOMP: [Field; 2] = [text("Type"), null("LocalhostProfile")];
pub(crate) static OBJECT_REFERENCE: [Field; 7] = [
    text("Kind"),
    text("Namespace"),
    text("Name"),
    text("UID"),
    text("APIVersion"),
    text("ResourceVersion"),
    text("FieldPath"),
];
pub(crate) static EVENT_SOURCE: [Field; 2] = [text("Component"), text("Host")];
pub(crate) static SERVICE_PORT: [Field; 6] = [
    text("Name"),
    text("Protocol"),
    null("AppProtocol"),
    Field { name: "Port", zero: Zero::Number },
    Field { name: "TargetPort", zero: Zero::Number },
    Field { name: "NodePort", zero: Zero::Number },
];
pub(crate) static PARENT_REFERENCE: [Field; 4] =
    [text("Group"), text("Resource"), text("Namespace"), text("Name")];
pub(crate) static DRIVER_OF_NODE: [Field; 4] =
    [text("Name"), text("NodeID"), null("TopologyKeys"), null("Allocatable")];
pub(crate) static DISTINGUISHER: [Field; 1] = [text("Type")];
pub(crate) static ADDRESS: [Field; 1] = [text("IP")];
pub(crate) static VOLUME_AFFINITY: [Field; 1] =
    [Field { name: "Required", zero: Zero::Pointer(&NODE_SELECTOR) }];
static NODE_SELECTOR: [Field; 1] =
    [Field { name: "NodeSelectorTerms", zero: Zero::List(&NODE_SELECTOR_TERM) }];
static NODE_SELECTOR_TERM: [Field; 2] = [
    Field { name: "MatchExpressions", zero: Zero::List(&NODE_REQUIREMENT) },
    Field { name: "MatchFields", zero: Zero::List(&NODE_REQUIREMENT) },
];
static NODE_REQUIREMENT: [Field; 3] = [text("Key"), text("Operator"), null("Values")];
pub(crate) static DEVICE_ATTRIBUTE: [Field; 4] =
    [null("IntValue"), null("BoolValue"), null("StringValue"), null("VersionValue")];
static CUSTOM_VERSION: [Field; 9] = [
    text("Name"),
    Field { name: "Served", zero: Zero::Flag },
    Field { name: "Storage", zero: Zero::Flag },
    Field { name: "Deprecated", zero: Zero::Flag },
    null("DeprecationWarning"),
    null("Schema"),
    null("Subresources"),
    null("AdditionalPrinterColumns"),
    null("SelectableFields"),
];
static CUSTOM_RULE: [Field; 6] = [
    text("Rule"),
    text("Message"),
    text("MessageExpression"),
    null("Reason"),
    text("FieldPath"),
    null("OptionalOldSelf"),
];

/// All types whose objects appear in messages.
static ALL: [&[Field]; 30] = [
    &TAINT,
    &SECURITY_CONTEXT,
    &ROLLOUT,
    &SURGING,
    &PARTITION,
    &DISRUPTION_BUDGET,
    &SUCCESS_POLICY,
    &SUCCESS_RULE,
    &SCOPE_SELECTOR,
    &SCOPE_REQUIREMENT,
    &VOLUME_ATTACHMENT,
    &ATTACHED,
    &NON_RESOURCE_ATTRIBUTES,
    &CUSTOM_VERSION,
    &CUSTOM_RULE,
    &TOLERATION,
    &POD_CLAIM,
    &SECCOMP,
    &OBJECT_REFERENCE,
    &EVENT_SOURCE,
    &SERVICE_PORT,
    &PARENT_REFERENCE,
    &DRIVER_OF_NODE,
    &DISTINGUISHER,
    &ADDRESS,
    &VOLUME_AFFINITY,
    &NODE_SELECTOR,
    &NODE_SELECTOR_TERM,
    &NODE_REQUIREMENT,
    &DEVICE_ATTRIBUTE,
];

/// Converts an object to its declared names, with all fields.
pub(crate) fn of(object: &Value, fields: &'static [Field]) -> Value {
    let declared = fields.iter().map(|field| {
        let given = object.as_object().and_then(|given| {
            given.iter().find(|(name, _)| name.eq_ignore_ascii_case(field.name)).map(|(_, value)| value)
        });
        (field.name.to_owned(), field.value(given.unwrap_or(&Value::Null)))
    });
    declared.collect()
}

impl Field {
    fn value(&self, given: &Value) -> Value {
        match (&self.zero, given) {
            (Zero::Struct(fields), given) => of(given, fields),
            (Zero::Pointer(fields), Value::Object(_)) => of(given, fields),
            (Zero::List(fields), Value::Array(items)) => items.iter().map(|item| of(item, fields)).collect(),
            (Zero::Text, Value::Null) => "".into(),
            (Zero::Number, Value::Null) => 0.into(),
            (Zero::Flag, Value::Null) => false.into(),
            (_, given) => given.clone(),
        }
    }
}

/// Formats a value as JSON, with fields in declaration order.
pub(crate) fn shown(value: &Value) -> String {
    match value {
        Value::Object(object) => {
            let names = order(object);
            let fields = names.iter().map(|name| {
                let value = object.get(*name).unwrap_or(&Value::Null);
                format!("{}:{}", Value::from(*name), shown(value))
            });
            format!("{{{}}}", fields.collect::<Vec<_>>().join(","))
        }
        Value::Array(items) => format!("[{}]", items.iter().map(shown).collect::<Vec<_>>().join(",")),
        scalar => escaped(&scalar.to_string()),
    }
}

/// Escapes JSON for HTML, as v1.34 does.
pub(crate) fn escaped(json: &str) -> String {
    json.replace('<', "\\u003c").replace('>', "\\u003e").replace('&', "\\u0026")
}

fn order(object: &Map<String, Value>) -> Vec<&str> {
    let is_of = |fields: &&&[Field]| {
        fields.len() == object.len() && fields.iter().all(|field| object.contains_key(field.name))
    };
    if let Some(fields) = ALL.iter().find(is_of) {
        return fields.iter().map(|field| field.name).collect();
    }
    let mut names: Vec<&str> = object.keys().map(String::as_str).collect();
    // Selectors have their labels first.
    if names == ["matchExpressions", "matchLabels"] {
        names.reverse();
    }
    names
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn every_field_is_shown_in_its_place() {
        let taint = json!({"effect": "NoSchedule", "key": "k"});
        assert_eq!(
            shown(&of(&taint, &TAINT)),
            r#"{"Key":"k","Value":"","Effect":"NoSchedule","TimeAdded":null}"#
        );
        let rollout = json!({"type": "X", "rollingUpdate": {"maxSurge": "25%"}});
        assert_eq!(
            shown(&of(&rollout, &ROLLOUT)),
            r#"{"Type":"X","RollingUpdate":{"MaxUnavailable":0,"MaxSurge":"25%"}}"#
        );
        let attachment = json!({"nodeName": "n", "attacher": "a", "source": {}});
        assert_eq!(
            shown(&of(&attachment, &VOLUME_ATTACHMENT)),
            r#"{"Attacher":"a","Source":{"PersistentVolumeName":null,"InlineVolumeSpec":null},"NodeName":"n"}"#
        );
    }

    #[test]
    fn pointers_and_list_items_are_declared() {
        let affinity = json!({"required": {"nodeSelectorTerms": [{"matchFields": [{"key": "k"}]}]}});
        assert_eq!(
            shown(&of(&affinity, &VOLUME_AFFINITY)),
            r#"{"Required":{"NodeSelectorTerms":[{"MatchExpressions":null,"MatchFields":[{"Key":"k","Operator":"","Values":null}]}]}}"#
        );
        assert_eq!(
            shown(&of(&json!({"uid": "u", "kind": "Pod"}), &OBJECT_REFERENCE)),
            r#"{"Kind":"Pod","Namespace":"","Name":"","UID":"u","APIVersion":"","ResourceVersion":"","FieldPath":""}"#
        );
    }

    #[test]
    fn other_objects_are_shown_as_they_are() {
        assert_eq!(shown(&json!({"rule": "a > 0"})), r#"{"rule":"a \u003e 0"}"#);
        let selector = json!({"matchLabels": {"b": "1", "a": "2"}, "matchExpressions": []});
        assert_eq!(shown(&selector), r#"{"matchLabels":{"a":"2","b":"1"},"matchExpressions":[]}"#);
        assert_eq!(shown(&json!(["x", {"a": 1}])), r#"["x",{"a":1}]"#);
    }
}
