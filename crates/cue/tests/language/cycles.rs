//! Cycles: of references, of values, of structure.

use super::check;

#[test]
fn cycles_of_references_add_nothing() {
    check(&[
        (
            "a: b & {x: 1}, b: c & {y: 2}, c: a & {z: 3}",
            r#"{"a": {"x": 1, "y": 2, "z": 3}, "b": {"x": 1, "y": 2, "z": 3}, "c": {"x": 1, "y": 2, "z": 3}}"#,
        ),
        ("a: b, b: a, a: 1", r#"{"a": 1, "b": 1}"#),
        ("a: a", "!incomplete value _"),
    ]);
}

#[test]
fn cycles_of_values_are_broken_by_a_concrete_one() {
    check(&[
        ("a: b + 1, b: a - 1", "!cycle"),
        ("a: b + 1, b: a - 1, a: 5", r#"{"a": 5, "b": 4}"#),
        ("a: b + 1, b: a - 1, b: 5", r#"{"a": 6, "b": 5}"#),
        ("a: b + 1, b: a - 1, a: 5, b: 5", "!conflicting values"),
        ("a: {x: y, y: z, z: x, x: 3}", r#"{"a": {"x": 3, "y": 3, "z": 3}}"#),
    ]);
}

#[test]
fn infinite_structures_are_refused() {
    check(&[
        ("a: b: a", "!a.b: structural cycle"),
        ("#L: {head: 1, tail: #L}, a: #L", "!structural cycle"),
        ("a: {b: c}, c: {d: a}", "!structural cycle"),
        ("a: [a]", "!structural cycle"),
    ]);
}
