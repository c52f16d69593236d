//! Fields: labels, markers, hidden fields, unification of structs.

use super::check;

#[test]
fn structs_unify_field_by_field() {
    check(&[
        ("a: b: 1\na: c: 2", r#"{"a": {"b": 1, "c": 2}}"#),
        ("a: {b: int} & {b: 3}", r#"{"a": {"b": 3}}"#),
        ("a: b: 1\na: b: 2", "!a.b: conflicting values 1 and 2"),
        ("a: {x: 1} & 5", "!conflicting values"),
        ("a: {} & {}", r#"{"a": {}}"#),
        ("a: 1\na: 1", r#"{"a": 1}"#),
        ("a: 1\na: 1.0", "!conflicting values 1 and 1.0"),
        ("a: int\na: string", "!conflicting values"),
    ]);
}

#[test]
fn labels_are_names_strings_and_expressions() {
    check(&[
        (r#""a-b": 1, "x y": z: 2"#, r#"{"a-b": 1, "x y": {"z": 2}}"#),
        (r#"k: "n", (k): 1, "\(k)2": 2, (k + "3"): 3"#, r#"{"k": "n", "n": 1, "n2": 2, "n3": 3}"#),
        ("if: 1, for: 2, let: 3, import: 4, in: 5", r#"{"if": 1, "for": 2, "let": 3, "import": 4, "in": 5}"#),
        ("k: 3, (k): 1", "!a label must be a string"),
        ("true: 1, a: true", r#"{"true": 1, "a": true}"#),
        ("$a: 1, b: $a", r#"{"$a": 1, "b": 1}"#),
    ]);
}

#[test]
fn hidden_fields_and_definitions_are_not_exported() {
    check(&[
        ("_h: 1, #D: 2, _#E: 3, a: _h + #D + _#E", r#"{"a": 6}"#),
        (r##""_x": 1, "#y": 2"##, r##"{"_x": 1, "#y": 2}"##),
        ("_h: string, a: 1", r#"{"a": 1}"#),
        ("_h: 1 & 2, a: 1", "!conflicting values 1 and 2"),
    ]);
}

#[test]
fn optional_fields_constrain_and_required_fields_insist() {
    check(&[
        ("a: {b?: int}", r#"{"a": {}}"#),
        ("a: {b?: int} & {b: 1}", r#"{"a": {"b": 1}}"#),
        (r#"a: {b?: int} & {b: "x"}"#, "!conflicting values"),
        ("a: {b?: 1} & {b?: 2}", r#"{"a": {}}"#),
        ("a: {b!: int}", "!a.b: the required field is not set"),
        ("a: {b!: int} & {b: 1}", r#"{"a": {"b": 1}}"#),
        ("a: {b!: 3} & {b: int}", r#"{"a": {"b": 3}}"#),
        (r#"k: "x", a: {(k)?: int}"#, r#"{"k": "x", "a": {}}"#),
    ]);
}

#[test]
fn embedded_scalars_are_scalars() {
    check(&[
        ("a: {5}", r#"{"a": 5}"#),
        (r#"a: {if true {"x"}}"#, r#"{"a": "x"}"#),
        (r#"a: {_h: "x", _h + "y"}"#, r#"{"a": "xy"}"#),
        ("a: {[1, 2]}", r#"{"a": [1, 2]}"#),
        ("a: {5, b: 1}", "!conflicting values"),
        ("a: {if false {1}}", r#"{"a": {}}"#),
        ("a: {#d: 1, 5}, b: a.#d", r#"{"a": 5, "b": 1}"#),
    ]);
}
