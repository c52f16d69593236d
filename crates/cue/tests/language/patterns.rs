//! Pattern constraints and label aliases.

use super::check;

#[test]
fn patterns_apply_to_the_fields_that_match() {
    check(&[
        ("a: [string]: int\na: x: 1", r#"{"a": {"x": 1}}"#),
        ("a: [string]: int\na: x: \"y\"", "!a.x: conflicting values"),
        ("a: {[=~\"^n\"]: {k: 1}, n1: {}, m1: {}}", r#"{"a": {"n1": {"k": 1}, "m1": {}}}"#),
        ("a: {[\"x\" | \"y\"]: 1, x: _, z: 2}", r#"{"a": {"x": 1, "z": 2}}"#),
        ("a: {[N=string]: name: N}\na: x: {}", r#"{"a": {"x": {"name": "x"}}}"#),
        ("a: {X=[string]: {v: 1, w: X.v}}\na: q: {}", r#"{"a": {"q": {"v": 1, "w": 1}}}"#),
        ("a: [string]: {n: string, m: *n | string}\na: x: n: \"y\"", r#"{"a": {"x": {"n": "y", "m": "y"}}}"#),
        ("a: {[>\"c\"]: 1, d: _, b: 2}", r#"{"a": {"d": 1, "b": 2}}"#),
        ("a: {[string]: 1, _h: 2, #D: 3}", r#"{"a": {}}"#),
        ("k: \"x\", a: {[k]: 1, x: _}", r#"{"k": "x", "a": {"x": 1}}"#),
    ]);
}
