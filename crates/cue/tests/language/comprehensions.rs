//! Comprehensions in structs and lists.

use super::check;

#[test]
fn for_goes_through_lists_and_structs() {
    check(&[
        ("a: [for x in [1, 2, 3] if x > 1 {x * 10}]", r#"{"a": [20, 30]}"#),
        ("a: [for i, x in [\"p\", \"q\"] {\"\\(i)\\(x)\"}]", r#"{"a": ["0p", "1q"]}"#),
        ("a: {for k, v in {p: 1, q: 2} {\"\\(k)x\": v}}", r#"{"a": {"px": 1, "qx": 2}}"#),
        ("a: {for x in [\"p\"] {(x): 1}}", r#"{"a": {"p": 1}}"#),
        ("a: [for x in [1, 2] for y in [3, 4] {x * y}]", r#"{"a": [3, 4, 6, 8]}"#),
        ("a: [for x in [1, 2] let y = x + 1 {y}]", r#"{"a": [2, 3]}"#),
        ("a: [1, for x in [2, 3] {x}, 4]", r#"{"a": [1, 2, 3, 4]}"#),
        ("a: [for x in [{n: 1}] {x, m: x.n + 1}]", r#"{"a": [{"n": 1, "m": 2}]}"#),
        ("a: {b?: 1, c: 2, #d: 3, _e: 4}, f: [for k, _ in a {k}]", r#"{"a": {"c": 2}, "f": ["c"]}"#),
        ("a: [for x in 5 {x}]", "!goes through a struct or a list"),
    ]);
}

#[test]
fn if_adds_fields_or_not() {
    check(&[
        ("x: true, a: {if x {b: 1}, if !x {c: 1}}", r#"{"x": true, "a": {"b": 1}}"#),
        ("a: {b: 1, if b == 1 if true {c: 2}}", r#"{"a": {"b": 1, "c": 2}}"#),
        ("a: {if a.c == 2 {d: 3}, if b == 1 {c: 2}, b: 1}", r#"{"a": {"b": 1, "c": 2, "d": 3}}"#),
        ("if true {a: 1}", r#"{"a": 1}"#),
        ("x: 1, if x {a: 1}", "!must be a bool"),
        ("x: bool, a: {if x {b: 1}}", "!not concrete"),
        ("a: [if true {1}, if false {2}]", r#"{"a": [1]}"#),
        (
            "l: [{n: 1}, {n: 2}], a: [for v in [for i, x in l {for j, y in l if j < i && x.n == y.n {_dup: true}, x}] if v._dup == _|_ {v}]",
            r#"{"l": [{"n": 1}, {"n": 2}], "a": [{"n": 1}, {"n": 2}]}"#,
        ),
        (
            "l: [{n: 1}, {n: 1}], a: [for v in [for i, x in l {for j, y in l if j < i && x.n == y.n {_dup: true}, x}] if v._dup == _|_ {v}]",
            r#"{"l": [{"n": 1}, {"n": 1}], "a": [{"n": 1}]}"#,
        ),
        ("a: {if a.b == _|_ {b: 1}}", "!circular condition"),
    ]);
}

#[test]
fn keywords_can_be_split_over_lines() {
    check(&[("a: [\n\tfor x in [1, 2]\n\tif x > 1 {\n\t\tx\n\t},\n]", r#"{"a": [2]}"#)]);
}
