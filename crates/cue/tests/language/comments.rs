//! Comments and attributes stay with values.

use setpoint_cue::{Instance, Tree, TreeValue};

fn patch(source: &str) -> Tree {
    Instance::of("patch.cue", source).unwrap().lookup("patch").unwrap().to_tree().unwrap()
}

fn at<'a>(tree: &'a Tree, path: &str) -> &'a Tree {
    path.split('.').fold(tree, |tree, name| tree.field(name).unwrap_or_else(|| panic!("{name} in {tree:?}")))
}

#[test]
fn markers_survive_evaluation() {
    let tree = patch(
        r#"
parameter: names: ["a", "b"]
patch: spec: {
	// an ordinary comment

	// +patchKey=name
	containers: [for n in parameter.names {name: n}]
	if len(parameter.names) > 1 {
		// +patchStrategy=retainKeys
		replicas: 2 // trailing
	}
}
// +patchStrategy=open
patch: metadata: name: "x" @tag(a,b="c")
"#,
    );
    assert_eq!(at(&tree, "spec.containers").marker("patchKey"), Some("name"));
    assert_eq!(at(&tree, "spec.containers").comments, ["+patchKey=name"]);
    assert_eq!(at(&tree, "spec.replicas").marker("patchStrategy"), Some("retainKeys"));
    assert_eq!(at(&tree, "spec.replicas").comments, ["+patchStrategy=retainKeys", "trailing"]);
    // Without braces, a comment is about the innermost field.
    let name = at(&tree, "metadata.name");
    assert_eq!((tree.marker("patchStrategy"), name.marker("patchStrategy")), (None, Some("open")));
    assert_eq!((name.attributes[0].name.as_str(), name.attributes[0].body.as_str()), ("tag", "a,b=\"c\""));
}

#[test]
fn markers_come_along_with_a_template() {
    let tree = patch(
        r#"
_T: {
	_n: string
	// +patchKey=name
	env: [{name: _n}]
}
patch: containers: [{_T & {_n: "A"}}]
"#,
    );
    let TreeValue::List { items, open, .. } = &at(&tree, "containers").value else { panic!("{tree:?}") };
    assert!(!open);
    assert_eq!(at(&items[0], "env").marker("patchKey"), Some("name"));
}

#[test]
fn markers_inside_alternatives_are_kept() {
    let tree = patch("patch: *{\n\t// +patchKey=ip\n\ta: [1]\n} | {b: 1}");
    assert_eq!(at(&tree, "a").marker("patchKey"), Some("ip"));
}

#[test]
fn open_lists_say_what_follows() {
    let tree = patch("patch: {every: [...{x: 1}], first: [{x: 1}, ...], closed: [1]}");
    let TreeValue::List { items, open, rest } = &at(&tree, "every").value else { panic!("{tree:?}") };
    assert!(items.is_empty() && *open);
    assert_eq!(rest.as_ref().unwrap().to_json()["x"], 1);
    let TreeValue::List { items, open, rest } = &at(&tree, "first").value else { panic!("{tree:?}") };
    assert!(items.len() == 1 && *open && rest.is_none());
}

#[test]
fn attributes_of_a_struct_belong_to_its_field() {
    let instance = Instance::of("a.cue", "a: {\n\t@local()\n\tb: 1 @private(x)\n}").unwrap();
    assert_eq!(instance.lookup("a").unwrap().attributes()[0].name, "local");
    assert_eq!(instance.lookup("a.b").unwrap().attributes()[0].name, "private");
}
