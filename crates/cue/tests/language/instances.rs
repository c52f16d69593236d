//! Instances: injected data, several sources, expressions.

use serde_json::json;
use setpoint_cue::{ErrorKind, Instance, Presence, Source};

const GREETING: &str = r#"
#Tone: "kind" | "curt"
output: {
	data: {
		words: "hello \(parameter.who)"
		tone:  parameter.tone
		if parameter.extra != _|_ for k, v in parameter.extra {"x-\(k)": v}
	}
}
parameter: {
	who:  string
	tone: *"kind" | #Tone
	extra?: [string]: string
}
"#;

fn greeting(parameter: serde_json::Value) -> Result<serde_json::Value, setpoint_cue::Errors> {
    let source = Source::parse("greeting.cue", GREETING).unwrap();
    let instance = Instance::builder().source(&source).fill("parameter", &parameter).build()?;
    instance.lookup("parameter")?.validate()?;
    instance.lookup("output")?.to_json()
}

#[test]
fn a_template_is_filled_with_data() {
    let output = greeting(json!({"who": "Ada"})).unwrap();
    assert_eq!(output, json!({"data": {"words": "hello Ada", "tone": "kind"}}));
    let output = greeting(json!({"who": "Ada", "extra": {"b": "2", "a": "1"}})).unwrap();
    assert_eq!(output["data"]["x-a"], "1");
}

#[test]
fn a_wrong_parameter_is_named() {
    let error = greeting(json!({"who": "Ada", "tone": "loud"})).unwrap_err();
    assert_eq!(error.first().path, "parameter.tone");
    assert!(error.to_string().contains("\"loud\""), "{error}");
    let error = greeting(json!({})).unwrap_err();
    assert_eq!(
        (error.first().kind, error.first().path.as_str()),
        (ErrorKind::Incomplete, "output.data.words")
    );
    assert!(error.to_string().contains("parameter.who: not concrete: string (greeting.cue:"), "{error}");
    let error = greeting(json!({"who": 5})).unwrap_err();
    assert!(error.to_string().contains("expected string, got int"), "{error}");
}

#[test]
fn a_source_is_evaluated_many_times() {
    let source = Source::parse("a.cue", "b: context.n + 1").unwrap();
    for n in 0..3 {
        let instance = Instance::builder().source(&source).fill("context", &json!({"n": n})).build().unwrap();
        assert_eq!(instance.lookup("b").unwrap().to_json().unwrap(), n + 1);
    }
    let unfilled = Instance::builder().source(&source).build().unwrap_err();
    assert!(unfilled.to_string().contains("reference `context` not found"));
    let expected = Instance::builder().source(&source).expect("context").build().unwrap();
    assert!(expected.lookup("b").unwrap().error().unwrap().kind.is_incomplete());
}

#[test]
fn sources_see_each_others_fields() {
    let a = Source::parse("a.cue", "package p\na: b + 1").unwrap();
    let b = Source::parse("b.cue", "package p\nb: 1").unwrap();
    let instance = Instance::builder().source(&a).source(&b).build().unwrap();
    assert_eq!(instance.root().to_json().unwrap(), json!({"a": 2, "b": 1}));
}

#[test]
fn data_goes_to_a_nested_path() {
    let source = Source::parse("a.cue", "a: b: c: int\nd: a.b.c").unwrap();
    let instance = Instance::builder().source(&source).fill("a.b", &json!({"c": 4})).build().unwrap();
    assert_eq!(instance.lookup("d").unwrap().to_json().unwrap(), 4);
    let wrong = Instance::builder().source(&source).fill("a.#b", &json!(1)).build().unwrap_err();
    assert!(wrong.to_string().contains("regular fields"));
}

#[test]
fn expressions_are_evaluated_in_an_instance() {
    let instance = Instance::of("a.cue", "status: build: {phase: \"succeeded\", failed: false}").unwrap();
    let condition = instance.evaluate("status.build.phase == \"succeeded\" && !status.build.failed").unwrap();
    assert_eq!(condition.as_bool(), Some(true));
    assert!(instance.evaluate("status.").is_err());
    assert!(instance.evaluate("nope == 1").unwrap_err().to_string().contains("`nope` not found"));
    assert_eq!(
        instance.evaluate("\"a\" + status.build.phase").unwrap().as_text().as_deref(),
        Some("asucceeded")
    );
}

#[test]
fn a_struct_of_which_a_part_is_missing_has_its_other_fields() {
    let text = "p: {l?: [...int]}\nout: {a: 1, for x in p.l {\"x\\(x)\": 1}, if true {b: 2}}";
    let instance = Instance::of("a.cue", text).unwrap();
    let out = instance.lookup("out").unwrap();
    let names: Vec<String> = out.fields().into_iter().map(|(name, ..)| name).collect();
    assert_eq!(names, ["a", "b"]);
    assert_eq!(out.error().unwrap().kind, ErrorKind::Absent);
    assert!(out.to_json().is_err());
    assert!(out.validate().is_ok());
    assert!(instance.root().has("out.a") && !instance.root().has("p.l"));
}

#[test]
fn fields_say_whether_they_are_set() {
    let instance = Instance::of("a.cue", "a: 1, b?: 2, c!: 3, #D: 4, _h: 5").unwrap();
    let fields: Vec<(String, Presence)> =
        instance.root().fields().into_iter().map(|(name, presence, _)| (name, presence)).collect();
    let expected = [("a", Presence::Set), ("b", Presence::Optional), ("c", Presence::Required)];
    assert_eq!(fields, expected.map(|(name, presence)| (name.to_owned(), presence)));
    assert_eq!(instance.root().definitions().len(), 1);
}
