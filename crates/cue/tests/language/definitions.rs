//! Definitions: recursion, references, templates.

use super::check;

#[test]
fn a_definition_is_a_template() {
    check(&[
        (
            "#T: {name: string, tag: \"app-\\(name)\"}\na: #T & {name: \"x\"}",
            r#"{"a": {"name": "x", "tag": "app-x"}}"#,
        ),
        ("_T: {_p: {n: int}, v: _p.n * 2}\na: _T & {_p: n: 4}", r#"{"a": {"v": 8}}"#),
        ("#A: {x: int}\n#B: {#A, x: _, y: x + 1}\na: #B & {x: 1}", r#"{"a": {"x": 1, "y": 2}}"#),
        (
            "#A: {x: *1 | int, y: x}\na: #A\nb: #A & {x: 5}",
            r#"{"a": {"x": 1, "y": 1}, "b": {"x": 5, "y": 5}}"#,
        ),
        (
            "#Tree: {v: int, next?: #Tree}\na: #Tree & {v: 1, next: v: 2}",
            r#"{"a": {"v": 1, "next": {"v": 2}}}"#,
        ),
        (
            "#L: {v: int, next: null | #L}\na: #L & {v: 1, next: {v: 2, next: null}}",
            r#"{"a": {"v": 1, "next": {"v": 2, "next": null}}}"#,
        ),
    ]);
}
