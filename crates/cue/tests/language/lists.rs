//! Lists: open and closed, unification, indexes and slices.

use super::check;

#[test]
fn lists_unify_element_by_element() {
    check(&[
        ("a: [1, 2]", r#"{"a": [1, 2]}"#),
        ("a: [int, string] & [1, \"x\"]", r#"{"a": [1, "x"]}"#),
        ("a: [...int] & [1, 2]", r#"{"a": [1, 2]}"#),
        ("a: [...]", r#"{"a": []}"#),
        ("a: [1, ...int] & [1, 2, 3]", r#"{"a": [1, 2, 3]}"#),
        ("a: [1] & [1, 2]", "!incompatible list lengths (1 and 2)"),
        ("a: [...int] & [1, \"x\"]", "!a[1]: conflicting values"),
        ("a: [1, ...] & [...int]", r#"{"a": [1]}"#),
        ("a: [...{x: 1}] & [{y: 2}, {z: 3}]", r#"{"a": [{"x": 1, "y": 2}, {"x": 1, "z": 3}]}"#),
        ("a: [..., 1]", "!`...` is the last element"),
    ]);
}

#[test]
fn elements_are_found_by_index() {
    check(&[
        ("a: [1, 2, 3], b: a[1]", r#"{"a": [1, 2, 3], "b": 2}"#),
        (
            "a: [1, 2, 3], b: a[1:], c: a[:1], d: a[1:2]",
            r#"{"a": [1, 2, 3], "b": [2, 3], "c": [1], "d": [2]}"#,
        ),
        ("a: [1], b: a[1]", "!out of range"),
        ("a: [1], b: a[-1]", "!must not be negative"),
        ("a: [1], b: a[2:1]", "!out of range"),
        ("a: {x: 1}, b: a[\"x\"]", r#"{"a": {"x": 1}, "b": 1}"#),
        ("a: [1, a[0] + 1]", r#"{"a": [1, 2]}"#),
        ("a: [1] + [2, 3]", r#"{"a": [1, 2, 3]}"#),
    ]);
}
