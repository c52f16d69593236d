//! The CustomResourceDefinitions of core.oam.dev, as in KubeVela 1.10.
//!
//! Schemas list the validated fields. Free-form parts (properties, definitions recorded in a revision, applied objects)
//! keep unknown fields.

mod schema;

use serde_json::{Value, json};
use setpoint::Kind;

use crate::names::GROUP;
use schema::{Schema, any, array, boolean, integer, map, object, string, strings, time};

/// A kind of core.oam.dev.
pub(crate) struct Crd {
    pub(crate) version: &'static str,
    pub(crate) kind: &'static str,
    pub(crate) plural: &'static str,
    pub(crate) namespaced: bool,
    short_names: &'static [&'static str],
    status: bool,
    columns: &'static [(&'static str, &'static str, &'static str)],
    schema: fn() -> Schema,
}

pub(crate) const APPLICATION: Crd = Crd {
    version: "v1beta1",
    kind: "Application",
    plural: "applications",
    namespaced: true,
    short_names: &["app", "velaapp"],
    status: true,
    columns: &[
        ("COMPONENT", ".spec.components[*].name", "string"),
        ("TYPE", ".spec.components[*].type", "string"),
        ("PHASE", ".status.status", "string"),
        ("HEALTHY", ".status.services[*].healthy", "boolean"),
        ("STATUS", ".status.services[*].message", "string"),
        AGE,
    ],
    schema: application,
};

pub(crate) const COMPONENT_DEFINITION: Crd = Crd {
    columns: &[
        ("WORKLOAD-KIND", ".spec.workload.definition.kind", "string"),
        ("DESCRIPTION", DESCRIPTION, "string"),
    ],
    ..definition("ComponentDefinition", "componentdefinitions", &["comp"], component_definition)
};

pub(crate) const TRAIT_DEFINITION: Crd = Crd {
    columns: &[("APPLIES-TO", ".spec.appliesToWorkloads", "string"), ("DESCRIPTION", DESCRIPTION, "string")],
    ..definition("TraitDefinition", "traitdefinitions", &["trait"], trait_definition)
};

pub(crate) const POLICY_DEFINITION: Crd =
    definition("PolicyDefinition", "policydefinitions", &["def-policy"], policy_definition);

pub(crate) const STEP_DEFINITION: Crd =
    definition("WorkflowStepDefinition", "workflowstepdefinitions", &["workflowstep"], step_definition);

pub(crate) const WORKLOAD_DEFINITION: Crd = Crd {
    status: false,
    columns: &[("DEFINITION-NAME", ".spec.definitionRef.name", "string")],
    ..definition("WorkloadDefinition", "workloaddefinitions", &["workload"], free_spec)
};

pub(crate) const DEFINITION_REVISION: Crd = Crd {
    status: false,
    columns: &[
        ("REVISION", ".spec.revision", "integer"),
        ("HASH", ".spec.revisionHash", "string"),
        ("TYPE", ".spec.definitionType", "string"),
    ],
    ..definition("DefinitionRevision", "definitionrevisions", &["defrev"], definition_revision)
};

pub(crate) const APPLICATION_REVISION: Crd = Crd {
    columns: &[
        AGE,
        ("PUBLISH_VERSION", r".metadata.annotations['app\.oam\.dev\/publishVersion']", "string"),
        ("SUCCEEDED", ".status.succeeded", "string"),
    ],
    ..definition("ApplicationRevision", "applicationrevisions", &["apprev"], application_revision)
};

pub(crate) const RESOURCE_TRACKER: Crd = Crd {
    namespaced: false,
    status: false,
    columns: &[
        ("TYPE", ".spec.type", "string"),
        ("APP", r".metadata.labels['app\.oam\.dev\/name']", "string"),
        ("APP-NS", r".metadata.labels['app\.oam\.dev\/namespace']", "string"),
        ("APP-GEN", ".spec.applicationGeneration", "number"),
    ],
    ..definition("ResourceTracker", "resourcetrackers", &["rt"], resource_tracker)
};

pub(crate) const POLICY: Crd = Crd {
    version: "v1alpha1",
    status: false,
    columns: &[("TYPE", ".type", "string")],
    ..definition("Policy", "policies", &[], policy)
};

pub(crate) const WORKFLOW: Crd = Crd {
    version: "v1alpha1",
    status: false,
    columns: &[],
    ..definition("Workflow", "workflows", &[], workflow)
};

pub(crate) const WORKFLOW_RUN: Crd = Crd {
    version: "v1alpha1",
    columns: &[("PHASE", ".status.status", "string"), AGE],
    ..definition("WorkflowRun", "workflowruns", &["wr"], workflow_run)
};

/// Every kind that is installed.
pub(crate) const ALL: &[&Crd] = &[
    &APPLICATION,
    &APPLICATION_REVISION,
    &RESOURCE_TRACKER,
    &COMPONENT_DEFINITION,
    &TRAIT_DEFINITION,
    &POLICY_DEFINITION,
    &STEP_DEFINITION,
    &WORKLOAD_DEFINITION,
    &DEFINITION_REVISION,
    &POLICY,
    &WORKFLOW,
    &WORKFLOW_RUN,
];

const AGE: (&str, &str, &str) = ("AGE", ".metadata.creationTimestamp", "date");
const DESCRIPTION: &str = r".metadata.annotations.definition\.oam\.dev/description";

const fn definition(
    kind: &'static str,
    plural: &'static str,
    short_names: &'static [&'static str],
    schema: fn() -> Schema,
) -> Crd {
    Crd {
        version: "v1beta1",
        kind,
        plural,
        namespaced: true,
        short_names,
        status: true,
        columns: &[],
        schema,
    }
}

impl Crd {
    pub(crate) fn kind(&self) -> Kind {
        Kind::new(GROUP, self.version, self.kind, self.plural, self.namespaced)
    }

    pub(crate) fn name(&self) -> String {
        format!("{}.{GROUP}", self.plural)
    }

    /// Returns the CustomResourceDefinition.
    pub(crate) fn object(&self) -> Value {
        let columns = self
            .columns
            .iter()
            .map(|(name, path, kind)| json!({"name": name, "jsonPath": path, "type": kind}));
        let mut version = json!({
            "name": self.version, "served": true, "storage": true,
            "schema": {"openAPIV3Schema": (self.schema)().into_value()},
        });
        if self.columns.is_empty() {
            version["additionalPrinterColumns"] = json!([{"name": "AGE", "jsonPath": AGE.1, "type": AGE.2}]);
        } else {
            version["additionalPrinterColumns"] = columns.collect();
        }
        if self.status {
            version["subresources"] = json!({"status": {}});
        }
        json!({
            "apiVersion": "apiextensions.k8s.io/v1",
            "kind": "CustomResourceDefinition",
            "metadata": {"name": self.name()},
            "spec": {
                "group": GROUP,
                "scope": if self.namespaced { "Namespaced" } else { "Cluster" },
                "names": {
                    "kind": self.kind,
                    "listKind": format!("{}List", self.kind),
                    "plural": self.plural,
                    "singular": self.kind.to_lowercase(),
                    "shortNames": self.short_names,
                    "categories": ["oam"],
                },
                "versions": [version],
            },
        })
    }
}

fn application() -> Schema {
    let traits = array(object().required("type", string()).field("properties", any()));
    let component = object()
        .required("name", string())
        .required("type", string())
        .field("properties", any())
        .field("traits", traits)
        .field("dependsOn", strings())
        .field("inputs", inputs())
        .field("outputs", outputs())
        .field("externalRevision", string())
        .field("scopes", any())
        .field("replicaKey", string());
    let policy = object().field("name", string()).required("type", string()).field("properties", any());
    let workflow = object().field("ref", string()).field("mode", mode()).field("steps", array(step(true)));
    let spec = object()
        .required("components", array(component))
        .field("policies", array(policy))
        .field("workflow", workflow);
    object().field("spec", spec).field("status", application_status())
}

fn inputs() -> Schema {
    array(object().required("from", string()).field("parameterKey", string()))
}

fn outputs() -> Schema {
    array(object().required("name", string()).required("valueFrom", string()))
}

fn mode() -> Schema {
    object().field("steps", string()).field("subSteps", string())
}

fn step(groups: bool) -> Schema {
    let step = object()
        .field("name", string())
        .required("type", string())
        .field("properties", any())
        .field("if", string())
        .field("timeout", string())
        .field("dependsOn", strings())
        .field("inputs", inputs())
        .field("outputs", outputs())
        .field("meta", object().field("alias", string()))
        .field("mode", string());
    if groups { step.field("subSteps", array(step_leaf())) } else { step }
}

fn step_leaf() -> Schema {
    step(false)
}

fn application_status() -> Schema {
    let latest =
        object().field("name", string()).field("revision", integer()).field("revisionHash", string());
    object()
        .field("status", string())
        .field("observedGeneration", integer())
        .field("conditions", array(condition()))
        .field("services", array(service()))
        .field("workflow", workflow_status())
        .field("latestRevision", latest)
        .field("appliedResources", array(reference()))
        .field("components", array(any()))
        .field("policy", array(any()))
}

fn condition() -> Schema {
    object()
        .required("type", string())
        .required("status", string())
        .required("reason", string())
        .required("lastTransitionTime", time())
        .field("message", string())
        .field("observedGeneration", integer())
}

fn reference() -> Schema {
    object()
        .field("apiVersion", string())
        .field("kind", string())
        .field("name", string())
        .field("namespace", string())
        .field("cluster", string())
        .field("creator", string())
        .field("uid", string())
        .field("resourceVersion", string())
        .field("fieldPath", string())
}

fn service() -> Schema {
    let health = |named: &str| {
        object()
            .required(named, string())
            .required("healthy", boolean())
            .field("message", string())
            .field("details", map(string()))
    };
    health("name")
        .field("namespace", string())
        .field("cluster", string())
        .field("env", string())
        .field("workloadDefinition", any())
        .field("scopes", array(any()))
        .field("traits", array(health("type").field("pending", boolean())))
}

fn workflow_status() -> Schema {
    run_status(string()).field("appRevision", string())
}

/// The status of a run, which has its own field for the mode.
fn run_status(mode: Schema) -> Schema {
    let leaf = || {
        object()
            .required("id", string())
            .field("name", string())
            .field("type", string())
            .field("phase", string())
            .field("message", string())
            .field("reason", string())
            .field("firstExecuteTime", time())
            .field("lastExecuteTime", time())
    };
    object()
        .required("mode", mode)
        .field("status", string())
        .field("message", string())
        .required("suspend", boolean())
        .field("suspendState", string())
        .required("terminated", boolean())
        .required("finished", boolean())
        .field("contextBackend", any())
        .field("startTime", time())
        .field("endTime", time())
        .field("steps", array(leaf().field("subSteps", array(leaf()))))
}

fn schematic() -> Schema {
    object().field("cue", object().required("template", string())).field("terraform", any())
}

fn definition_status() -> Schema {
    object().field("healthPolicy", string()).field("customStatus", string()).field("details", string())
}

fn definition_object(spec: Schema) -> Schema {
    let latest =
        object().field("name", string()).field("revision", integer()).field("revisionHash", string());
    let status = object()
        .field("conditions", array(condition()))
        .field("configMapRef", string())
        .field("latestRevision", latest);
    object().field("spec", spec).field("status", status)
}

fn definition_spec() -> Schema {
    object()
        .field("schematic", schematic())
        .field("version", string())
        .field("extension", any())
        .field("definitionRef", any())
}

fn component_definition() -> Schema {
    let workload = object()
        .field("type", string())
        .field("definition", object().required("apiVersion", string()).required("kind", string()));
    definition_object(
        definition_spec()
            .field("workload", workload)
            .field("childResourceKinds", array(any()))
            .field("podSpecPath", string())
            .field("revisionLabel", string())
            .field("status", definition_status()),
    )
}

fn trait_definition() -> Schema {
    definition_object(
        definition_spec()
            .field("appliesToWorkloads", strings())
            .field("conflictsWith", strings())
            .field("podDisruptive", boolean())
            .field("workloadRefPath", string())
            .field("manageWorkload", boolean())
            .field("controlPlaneOnly", boolean())
            .field("revisionEnabled", boolean())
            .field("stage", string().one_of(&["PreDispatch", "DefaultDispatch", "PostDispatch"]))
            .field("status", definition_status()),
    )
}

fn policy_definition() -> Schema {
    definition_object(definition_spec().field("manageHealthCheck", boolean()))
}

fn step_definition() -> Schema {
    definition_object(definition_spec())
}

fn definition_revision() -> Schema {
    let spec = object()
        .required("revision", integer())
        .required("revisionHash", string())
        .required("definitionType", string())
        .field("componentDefinition", any())
        .field("traitDefinition", any())
        .field("policyDefinition", any())
        .field("workflowStepDefinition", any());
    object().field("spec", spec)
}

fn application_revision() -> Schema {
    let status = object()
        .required("succeeded", boolean())
        .field("workflow", any())
        .field("workflowContext", map(string()));
    object().field("spec", any()).field("status", status)
}

fn resource_tracker() -> Schema {
    let managed = reference()
        .field("component", string())
        .field("trait", string())
        .field("env", string())
        .field("raw", any())
        .field("data", any())
        .field("deleted", boolean())
        .field("skipGC", boolean());
    let spec = object()
        .field("type", string())
        .required("applicationGeneration", integer())
        .field("compression", any())
        .field("managedResources", array(managed));
    object().field("spec", spec)
}

fn policy() -> Schema {
    object().required("type", string()).field("properties", any())
}

fn workflow() -> Schema {
    object().field("mode", mode()).field("steps", array(step(true)))
}

fn workflow_run() -> Schema {
    let spec = object()
        .field("context", any())
        .field("mode", mode())
        .field("workflowSpec", object().field("steps", array(step(true))))
        .field("workflowRef", string());
    let status = run_status(mode()).field("conditions", array(condition()));
    object().field("spec", spec).field("status", status)
}

fn free_spec() -> Schema {
    object().field("spec", any())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_definition_is_named_after_its_plural_and_group() {
        for crd in ALL {
            let object = crd.object();
            assert_eq!(object["metadata"]["name"], format!("{}.core.oam.dev", crd.plural));
            assert_eq!(object["spec"]["names"]["categories"], json!(["oam"]));
        }
    }

    #[test]
    fn properties_keep_unknown_fields() {
        let object = APPLICATION.object();
        let spec = &object["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"];
        let properties = &spec["properties"]["components"]["items"]["properties"]["properties"];
        assert_eq!(properties["x-kubernetes-preserve-unknown-fields"], true);
    }
}
