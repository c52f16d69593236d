//! Disjunctions and defaults.

use super::check;

#[test]
fn alternatives_that_conflict_are_dropped() {
    check(&[
        (
            r#"a: "x" | "y"
a: "y""#,
            r#"{"a": "y"}"#,
        ),
        (r#"a: ("x" | "y") & "z""#, "!none of 2 alternatives fits"),
        ("a: (1 | 2 | 3) & (2 | 3 | 4) & !=3", r#"{"a": 2}"#),
        ("a: {t: \"p\", x: 1} | {t: \"q\", y: 2}\na: t: \"q\"", r#"{"a": {"t": "q", "y": 2}}"#),
        ("a: 1 | 1", r#"{"a": 1}"#),
        ("a: 1 | 2", "!choose one of the alternatives"),
        ("a: {x: 1} | {x: 1}", r#"{"a": {"x": 1}}"#),
        ("a: null | {b: int}\na: b: 1", r#"{"a": {"b": 1}}"#),
        ("a: [1, 2] | [3]\na: [_]", r#"{"a": [3]}"#),
        ("a: *_|_ | {b: 1}", r#"{"a": {"b": 1}}"#),
        ("p: {}, a: *[for x in p.list {x}] | []", r#"{"p": {}, "a": []}"#),
        ("p: {}, a: *p.x | \"none\"", r#"{"p": {}, "a": "none"}"#),
    ]);
}

#[test]
fn defaults_hold_until_something_else_is_given() {
    check(&[
        (r#"a: *"x" | string"#, r#"{"a": "x"}"#),
        ("a: *\"x\" | string\na: \"y\"", r#"{"a": "y"}"#),
        ("a: *1 | 2\nb: a + 1", r#"{"a": 1, "b": 2}"#),
        ("a: *1 | int, b: a & 5", r#"{"a": 1, "b": 5}"#),
        (r#"a: *"a" | "b", b: *"b" | "a", c: a & b"#, "!choose one"),
        ("a: *1 | *2 | 3", "!choose one"),
        ("a: *1 | (*2 | 3)", r#"{"a": 1}"#),
        ("a: (*1 | 2) & (1 | 2)", r#"{"a": 1}"#),
        ("x: (*[...] | _) | ([] | _), a: x & x", r#"{"x": [], "a": []}"#),
        ("a: (*1 | 2 | 3) & (2 | 3)", "!choose one"),
        ("p: *1 | int\np: 2\na: *p | int", r#"{"p": 2, "a": 2}"#),
        ("a: *{x: 1} | {x: 2, y: 3}", r#"{"a": {"x": 1}}"#),
        ("a: *{x: 1} | {x: 2, y: 3}\na: y: 3\na: x: 2", r#"{"a": {"x": 2, "y": 3}}"#),
        ("a: [...*1 | int] & [_, 2]", r#"{"a": [1, 2]}"#),
        ("a: *b | \"z\", b: string, b: \"q\"", r#"{"a": "q", "b": "q"}"#),
        ("#T: \"kind\" | \"curt\"\na: *\"kind\" | #T\na: \"curt\"", r#"{"a": "curt"}"#),
        ("#T: \"kind\" | \"curt\"\na: *\"kind\" | #T\na: \"loud\"", "!none of"),
    ]);
}

#[test]
fn references_inside_an_alternative_see_that_alternative() {
    check(&[
        ("a: {t: \"x\"} & ({t: \"x\", v: a.t + \"1\"} | {t: \"y\"})", r#"{"a": {"t": "x", "v": "x1"}}"#),
        (
            "p: {k: *\"a\" | \"b\", if k == \"b\" {extra: 1}}, q: p & {k: \"b\"}",
            r#"{"p": {"k": "a"}, "q": {"k": "b", "extra": 1}}"#,
        ),
    ]);
}
