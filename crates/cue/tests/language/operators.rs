//! Arithmetic, comparison, logic.

use super::check;

#[test]
fn arithmetic_is_exact() {
    check(&[
        ("a: 1 + 2 * 3 - 4", r#"{"a": 3}"#),
        ("a: 0.1 + 0.2", r#"{"a": 0.3}"#),
        ("a: 7 / 2", r#"{"a": 3.5}"#),
        ("a: (1 + 2) * 3", r#"{"a": 9}"#),
        (
            "a: div(-7, 2), b: mod(-7, 2), c: quo(-7, 2), d: rem(-7, 2)",
            r#"{"a": -4, "b": 1, "c": -3, "d": -1}"#,
        ),
        ("a: 1 / 0", "!division by zero"),
        ("a: div(1, 0)", "!division by zero"),
        (r#"a: "x" + 1"#, "!invalid operands"),
        (r#"a: "x" + "y", b: 3 * "ab""#, r#"{"a": "xy", "b": "ababab"}"#),
        ("a: 170141183460469231731687303715884105727 + 1", "!number too large"),
    ]);
}

#[test]
fn comparisons_give_bools() {
    check(&[
        (
            "a: 1 < 2, b: 2 <= 1, c: 1 == 1.0, d: \"a\" < \"b\"",
            r#"{"a": true, "b": false, "c": true, "d": true}"#,
        ),
        (
            "a: [1, 2] == [1, 2], b: {x: 1} == {x: 2}, c: {x: 1} != {y: 1}",
            r#"{"a": true, "b": false, "c": true}"#,
        ),
        (r#"a: "abc" =~ "^a", b: "abc" !~ "z", c: "abc" =~ "^b""#, r#"{"a": true, "b": true, "c": false}"#),
        ("a: null == null, b: 1 == \"1\"", r#"{"a": true, "b": false}"#),
        ("a: true && false || true, b: !true", r#"{"a": true, "b": false}"#),
        ("a: 1 < \"x\"", "!cannot compare"),
        ("a: 1 && true", "!needs bools"),
        ("a: \"x\" =~ \"(\"", "!not a regular expression"),
        ("x: {a: *1 | int}, b: x.a == 1", r#"{"x": {"a": 1}, "b": true}"#),
    ]);
}

#[test]
fn logic_stops_early() {
    check(&[
        ("p: {}, a: p.x != _|_ && p.x.y == 1", r#"{"p": {}, "a": false}"#),
        ("p: {}, a: p.x == _|_ || p.x.y == 1", r#"{"p": {}, "a": true}"#),
    ]);
}
