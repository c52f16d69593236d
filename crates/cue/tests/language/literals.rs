//! Numbers, strings, byte sequences, commas.

use super::check;

#[test]
fn numbers_have_bases_separators_and_multipliers() {
    check(&[
        ("a: 1_000", r#"{"a": 1000}"#),
        ("a: 0x1F, b: 0o17, c: 0b101", r#"{"a": 31, "b": 15, "c": 5}"#),
        ("a: 1K, b: 1Ki, c: 1.5M, d: 2Gi", r#"{"a": 1000, "b": 1024, "c": 1500000, "d": 2147483648}"#),
        ("a: 1.5, b: .25, c: 1e3, d: 1.0", r#"{"a": 1.5, "b": 0.25, "c": 1000.0, "d": 1.0}"#),
        ("a: -5", r#"{"a": -5}"#),
        ("a: 18446744073709551615", r#"{"a": 18446744073709551615}"#),
        ("a: 18446744073709551616", "!does not fit into JSON's 64 bits"),
        ("a: 007", "!does not start with 0"),
        ("a: 1.3Ki", "!must be an integer"),
    ]);
}

#[test]
fn strings_have_escapes_and_raw_forms() {
    check(&[
        (r#"a: "x\ty\u00e9\U0001F600\"""#, "{\"a\": \"x\\tyé😀\\\"\"}"),
        (r##"a: #"raw \n \#(1+1)"#"##, r#"{"a": "raw \\n 2"}"#),
        ("a: \"\"\"\n\tone\n\t  two\n\n\tthree\n\t\"\"\"", r#"{"a": "one\n  two\n\nthree"}"#),
        ("a: \"\"\"\n\t\"\"\"", r#"{"a": ""}"#),
        ("a: \"\"\"\n\tone\n  two\n\t\"\"\"", "!indented less"),
        ("a: \"x", "!not closed"),
        (r#"a: "\q""#, "!unknown escape"),
        (r#"a: "\ud83d\ude00""#, r#"{"a": "😀"}"#),
    ]);
}

#[test]
fn bytes_are_exported_as_base64() {
    check(&[
        (r"a: 'abc'", r#"{"a": "YWJj"}"#),
        (r"a: '\x00\377'", r#"{"a": "AP8="}"#),
        (r"a: 'abc'[1:]", r#"{"a": "YmM="}"#),
    ]);
}

#[test]
fn interpolation_takes_any_scalar() {
    check(&[
        (r#"n: 3, a: "\(n) and \(n+1)""#, r#"{"n": 3, "a": "3 and 4"}"#),
        (r#"a: "\(true) \(1.50) \("x\("y")")""#, r#"{"a": "true 1.50 xy"}"#),
        ("x: 1\na: \"\"\"\n  v=\\(x)\n  \"\"\"", r#"{"x": 1, "a": "v=1"}"#),
        (r#"a: "\(null)""#, "!null cannot be interpolated"),
        (r#"a: "\([1])""#, "!cannot be used as a single value"),
        (r#"a: "\(b)", b: string"#, "!not concrete"),
        (r#"a: "\(1""#, "!not closed"),
    ]);
}

#[test]
fn line_breaks_stand_for_commas() {
    check(&[
        ("a: 1 // c\nb: 2,\nc: [\n1,\n2,\n]", r#"{"a": 1, "b": 2, "c": [1, 2]}"#),
        ("a: {b: 1, c: 2}", r#"{"a": {"b": 1, "c": 2}}"#),
        ("a: 1 b: 2", "!expected a line break"),
        ("a:\n  1", r#"{"a": 1}"#),
        ("a: 1 +\n  2", r#"{"a": 3}"#),
    ]);
}
