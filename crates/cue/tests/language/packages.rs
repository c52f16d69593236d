//! Host packages.

use serde_json::{Value as Json, json};
use setpoint_cue::{Instance, Package, Packages, Source};

fn packages() -> Packages {
    let definitions = "#Apply: {\n\t#do: \"apply\"\n\t#provider: \"kube\"\n\t$params: {value: {...}, cluster: *\"\" | string}\n\t$returns?: {...}\n}";
    let reverse = |arguments: &[Json]| match arguments {
        [Json::String(text)] => Ok(text.chars().rev().collect::<String>().into()),
        _ => Err("takes one string".to_owned()),
    };
    let package =
        Package::new().source(Source::parse("kube.cue", definitions).unwrap()).function("Reverse", reverse);
    Packages::new().with("vela/kube", package)
}

fn instance(text: &str) -> Instance {
    let source = Source::parse("t.cue", text).unwrap();
    Instance::builder().source(&source).packages(packages()).build().unwrap()
}

#[test]
fn definitions_of_the_host_are_data() {
    let instance = instance("import \"vela/kube\"\napply: kube.#Apply & {$params: value: {kind: \"X\"}}");
    let apply = instance.lookup("apply").unwrap();
    assert_eq!(apply.lookup("#do").unwrap().as_text().as_deref(), Some("apply"));
    assert_eq!(apply.to_json().unwrap(), json!({"$params": {"cluster": "", "value": {"kind": "X"}}}));
}

#[test]
fn definitions_of_the_host_are_closed() {
    let instance = instance("import k \"vela/kube\"\napply: k.#Apply & {$params: valu: {}}");
    let error = instance.lookup("apply").unwrap().to_json().unwrap_err();
    assert!(error.to_string().contains("field `valu` is not allowed"), "{error}");
}

#[test]
fn functions_of_the_host_are_called() {
    let good = instance("import \"vela/kube\"\na: kube.Reverse(\"abc\")");
    assert_eq!(good.lookup("a").unwrap().as_text().as_deref(), Some("cba"));
    let bad = instance("import \"vela/kube\"\na: kube.Reverse(1)");
    let error = bad.lookup("a").unwrap().error().unwrap();
    assert!(error.to_string().contains("kube.Reverse failed: takes one string"), "{error}");
}

#[test]
fn unknown_packages_are_refused_before_evaluation() {
    let source = Source::parse("t.cue", "import \"vela/kub\"\na: kub.#X").unwrap();
    let error = Instance::builder().source(&source).packages(packages()).build().unwrap_err();
    assert!(error.to_string().contains("did you mean \"vela/kube\"?"), "{error}");
}
