//! Bounds and predeclared ranges.

use super::check;

#[test]
fn values_lie_within_bounds() {
    check(&[
        ("a: >=1 & <=10 & 5", r#"{"a": 5}"#),
        ("a: >5 & 5", "!a: invalid value 5: out of bound >5"),
        ("a: !=1 & 2", r#"{"a": 2}"#),
        ("a: !=1 & 1", "!out of bound !=1"),
        (r#"a: =~"^[a-z]+$" & "abc""#, r#"{"a": "abc"}"#),
        (r#"a: =~"^[a-z]+$" & "ABC""#, "!out of bound =~"),
        (r#"a: !~"x" & "abc""#, r#"{"a": "abc"}"#),
        (r#"a: >="b" & "c""#, r#"{"a": "c"}"#),
        (r#"a: >5 & "x""#, "!conflicting values"),
        ("a: >5 & <3", "!conflicting bounds"),
        ("a: int & >=3 & <=3", r#"{"a": 3}"#),
        ("a: >5", "!incomplete value >5"),
        ("m: 5, a: >m & 6", r#"{"m": 5, "a": 6}"#),
        ("a: !=null & 1", r#"{"a": 1}"#),
        ("a: !=null & null", "!conflicting values"),
    ]);
}

#[test]
fn sized_integers_are_ranges() {
    check(&[
        ("a: uint8 & 255, b: int8 & -128", r#"{"a": 255, "b": -128}"#),
        ("a: uint8 & 256", "!out of bound"),
        ("a: uint & -1", "!out of bound"),
        ("a: int64 & 9223372036854775807", r#"{"a": 9223372036854775807}"#),
        ("a: int32 & 1.0", "!conflicting values"),
        ("a: float64 & 1.5", r#"{"a": 1.5}"#),
    ]);
}
