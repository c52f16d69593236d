//! Introspection of parameters.

use serde_json::json;
use setpoint_cue::{Instance, Kind, Schema};

const PARAMETER: &str = r#"
#Probe: {path: string, port: *80 | int}
parameter: {
	// +usage=Which image
	// +short=i
	image: string
	// +usage=How many
	replicas: *1 | int & >0
	pull?: "Always" | "Never"
	level: *"info" | "debug"
	labels?: [string]: string
	env?: [...{name: string, value?: string}]
	probe?: #Probe
	size: =~"^[0-9]+Gi$"
	any: _
	kind: "fixed"
	target: string | {name: string}
	nested: {x: *1 | int}
}
"#;

fn schema() -> Schema {
    Instance::of("p.cue", PARAMETER).unwrap().lookup("parameter").unwrap().schema().unwrap()
}

#[test]
fn fields_have_types_defaults_and_usage() {
    let schema = schema();
    let row = |name: &str| {
        let field = schema.field(name).unwrap();
        (field.required, field.schema.kind, field.schema.default.clone(), field.schema.summary())
    };
    assert_eq!(row("image"), (true, Kind::STRING, None, "string".to_owned()));
    assert_eq!(row("replicas"), (false, Kind::INT, Some(json!(1)), "int".to_owned()));
    assert_eq!(row("pull"), (false, Kind::STRING, None, "\"Always\" | \"Never\"".to_owned()));
    assert_eq!(row("level").2, Some(json!("info")));
    assert_eq!(row("labels").3, "{[string]: string}");
    assert_eq!(row("env").3, "[...{…}]");
    assert_eq!(row("any"), (true, Kind::ANY, None, "_".to_owned()));
    assert_eq!(row("kind"), (false, Kind::STRING, Some(json!("fixed")), "\"fixed\"".to_owned()));
    assert_eq!(row("target").3, "string | {…}");
    assert!(!row("nested").0);
    assert_eq!(schema.field("image").unwrap().schema.marker("usage"), Some("Which image"));
    assert_eq!(schema.field("image").unwrap().schema.marker("short"), Some("i"));
    assert!(schema.field("probe").unwrap().schema.closed && !schema.closed);
}

#[test]
fn a_schema_becomes_openapi() {
    let openapi = schema().to_openapi();
    assert_eq!(openapi["required"], json!(["image", "size", "any", "target"]));
    let properties = &openapi["properties"];
    assert_eq!(properties["image"], json!({"type": "string", "description": "Which image"}));
    let replicas = json!({"type": "integer", "default": 1, "minimum": 0, "exclusiveMinimum": true, "description": "How many"});
    assert_eq!(properties["replicas"], replicas);
    assert_eq!(properties["pull"], json!({"type": "string", "enum": ["Always", "Never"]}));
    assert_eq!(properties["labels"], json!({"type": "object", "additionalProperties": {"type": "string"}}));
    assert_eq!(properties["env"]["items"]["required"], json!(["name"]));
    assert_eq!(properties["probe"]["additionalProperties"], false);
    assert_eq!(properties["size"], json!({"type": "string", "pattern": "^[0-9]+Gi$"}));
    assert_eq!(properties["target"]["oneOf"].as_array().unwrap().len(), 2);
}

#[test]
fn a_recursive_definition_has_a_finite_schema() {
    let instance = Instance::of("p.cue", "#T: {v: int, next?: #T}\np: #T").unwrap();
    let schema = instance.lookup("p").unwrap().schema().unwrap();
    assert!(schema.field("next").unwrap().schema.field("next").is_some());
}

#[test]
fn the_elements_of_a_list_inside_an_alternative_have_a_schema() {
    let instance = Instance::of("p.cue", "p: *[...(*1 | (*2 | 3) | string)] | null").unwrap();
    let schema = instance.lookup("p").unwrap().schema().unwrap();
    assert_eq!(schema.alternatives.len(), 2);
    assert_eq!(instance.lookup("p").unwrap().to_cue(), "*[...*1 | 2 | 3 | string] | null");
}
