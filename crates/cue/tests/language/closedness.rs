//! Closedness: definitions, `close`, ellipses, embedding.

use super::check;

#[test]
fn definitions_refuse_fields_that_they_do_not_declare() {
    check(&[
        (
            "#D: {a: int}\nx: #D & {a: 1, b: 2}",
            "!x.b: field `b` is not allowed; the definition is closed and has a",
        ),
        ("#D: {a: int, ...}\nx: #D & {a: 1, b: 2}", r#"{"x": {"a": 1, "b": 2}}"#),
        ("#D: {a: {b: int}}\nx: #D & {a: {b: 1, c: 2}}", "!x.a.c: field `c` is not allowed"),
        ("#D: {a: _}\nx: #D & {a: {c: 2}}", r#"{"x": {"a": {"c": 2}}}"#),
        ("#D: {a?: int}\nx: #D & {a: 1}", r#"{"x": {"a": 1}}"#),
        ("#D: {[=~\"^x\"]: int}\nx: #D & {x1: 1}", r#"{"x": {"x1": 1}}"#),
        ("#D: {[=~\"^x\"]: int}\nx: #D & {y1: 1}", "!field `y1` is not allowed"),
        ("#D: {a: int}\nx: #D & {a: 1, _h: 2}", r#"{"x": {"a": 1}}"#),
        ("#D: [...{a: int}]\nx: #D & [{a: 1, b: 2}]", "!x[0].b: field `b` is not allowed"),
        ("#D: {a: int}\nx: #D\nx: b: 1", "!x.b: field `b` is not allowed"),
        ("#D: {a: b: int}\nx: #D.a & {c: 1}", "!x.c: field `c` is not allowed"),
        ("#D: {a: int}\n#D: {b: int}\nx: #D & {a: 1, b: 2}", r#"{"x": {"a": 1, "b": 2}}"#),
        ("#A: {a: int}\n#B: {b: int}\nx: #A & #B & {a: 1, b: 2}", "!not allowed"),
    ]);
}

#[test]
fn embedding_opens_a_definition_to_the_fields_beside_it() {
    check(&[
        ("#A: {a: int}\nx: {#A, a: 1, b: 2}", r#"{"x": {"a": 1, "b": 2}}"#),
        ("#A: {a: int}\nx: {#A, b: 2} & {a: 1, c: 3}", "!x.c: field `c` is not allowed"),
        ("#A: {a: int}\n#B: {#A, b: int}\nx: #B & {a: 1, b: 2}", r#"{"x": {"a": 1, "b": 2}}"#),
        ("#A: {a: int}\n#B: {#A, b: int}\nx: #B & {a: 1, b: 2, c: 3}", "!x.c: field `c` is not allowed"),
        ("#A: {a: int}\nx: {#A & {a: 1, c: 2}, b: 3}", "!x.c: field `c` is not allowed"),
        ("#A: {b: f: 1}\n#B: {b: g: 1}\nx: {#A, #B}", r#"{"x": {"b": {"f": 1, "g": 1}}}"#),
        ("#A: {a: int}\nx: {#A, if true {b: 2}, a: 1}", r#"{"x": {"a": 1, "b": 2}}"#),
    ]);
}

#[test]
fn close_closes_one_level() {
    check(&[
        ("x: close({a: int}) & {a: 1}", r#"{"x": {"a": 1}}"#),
        ("x: close({a: int}) & {b: 1}", "!x.b: field `b` is not allowed"),
        ("x: close({a: {b: int}}) & {a: {b: 1, c: 2}}", r#"{"x": {"a": {"b": 1, "c": 2}}}"#),
        ("x: close({[string]: int}) & {q: 1}", r#"{"x": {"q": 1}}"#),
        ("p: *{e: [string]: string} | close({c: [...int]})\np: c: [1]", r#"{"p": {"c": [1], "e": {}}}"#),
        ("#P: {e: [string]: string}\np: *#P | close({c: [...int]})\np: c: [1]", r#"{"p": {"c": [1]}}"#),
    ]);
}
