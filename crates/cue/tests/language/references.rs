//! References, scopes, aliases, `let`.

use super::check;

#[test]
fn names_are_found_from_the_inside_out() {
    check(&[
        ("a: 1, b: {a: 2, c: a}", r#"{"a": 1, "b": {"a": 2, "c": 2}}"#),
        ("a: 1, b: {c: a}", r#"{"a": 1, "b": {"c": 1}}"#),
        ("a: {b: c: 1}, d: a.b.c", r#"{"a": {"b": {"c": 1}}, "d": 1}"#),
        ("a: \"x y\": 1, b: a[\"x y\"], c: a.\"x y\"", r#"{"a": {"x y": 1}, "b": 1, "c": 1}"#),
        ("b: a.x, a: y: 1", "!undefined field `x`"),
        ("a: {port: 1}, b: a.prot", "!did you mean `port`?"),
        ("a: nope", "!reference `nope` not found"),
        ("a: strings.ToUpper(\"x\")", "!add: import \"strings\""),
        ("a: {b?: 1}, c: a.b", "!optional and not set"),
    ]);
}

#[test]
fn copies_refer_to_themselves() {
    check(&[
        (
            "_a: {x: int, y: x + 1}, b: _a & {x: 2}, c: _a & {x: 3}",
            r#"{"b": {"x": 2, "y": 3}, "c": {"x": 3, "y": 4}}"#,
        ),
        ("a: {x: int, y: a.x}, b: a & {x: 2}", "!a.x: incomplete value int"),
    ]);
}

#[test]
fn let_and_aliases_name_values() {
    check(&[
        ("let x = 2\na: x * x", r#"{"a": 4}"#),
        ("a: {let y = b + 1, b: 1, c: y}", r#"{"a": {"b": 1, "c": 2}}"#),
        ("X=\"odd name\": 4, a: X", r#"{"odd name": 4, "a": 4}"#),
        ("a: X={b: 1, c: X.b}", r#"{"a": {"b": 1, "c": 1}}"#),
        ("a: {for k, v in {p: 1} {let w = v + 1, \"\\(k)\": w}}", r#"{"a": {"p": 2}}"#),
        ("k: \"q\", Y=(k): 3, a: Y", r#"{"k": "q", "q": 3, "a": 3}"#),
        ("let x = 1\nlet x = 2\na: x", "!declared twice"),
        ("a: {(K=\"p\" + \"q\"): {name: K}}", r#"{"a": {"pq": {"name": "pq"}}}"#),
    ]);
}
