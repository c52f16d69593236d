//! `_|_` tests: what counts as a value.

use setpoint_cue::Instance;

use super::check;

#[test]
fn only_a_known_value_differs_from_bottom() {
    let row = |declared: &str, expected: bool| {
        let source = format!("p: {{{declared}}}, a: p.x != _|_, b: p.x == _|_");
        let instance = Instance::of("case.cue", &source).unwrap();
        let test = |name: &str| instance.lookup(name).unwrap().as_bool();
        assert_eq!((test("a"), test("b")), (Some(expected), Some(!expected)), "{source}");
    };
    for declared in ["x: 1", "x: {}", "x: []", "x: *1 | int", "x: null", "x: {y: string}"] {
        row(declared, true);
    }
    // Absent, optional, only a type, ambiguous, conflict, conflict inside, unknown.
    let without = ["", "x?: 1", "x: int", "x: 1 | 2", "x: 1 & 2", "x: {y: 1 & 2}", "x: y.z, y: {}", "x: _"];
    for declared in without {
        row(declared, false);
    }
}

#[test]
fn a_test_of_something_absent_goes_all_the_way() {
    check(&[
        ("_p: {}, a: _p.x.y.z != _|_", r#"{"a": false}"#),
        ("_p: {x: 5}, a: _p.x.y != _|_", r#"{"a": false}"#),
        ("_p: {l: [1]}, a: _p.l[0] != _|_, b: _p.l[3] != _|_", r#"{"a": true, "b": false}"#),
        ("_p: {\"k/x\": 1}, a: _p[\"k/x\"] != _|_, b: _p[\"z\"] != _|_", r#"{"a": true, "b": false}"#),
        ("a: _|_", "!explicit error"),
        ("a: error(\"use b instead\")", "!use b instead"),
    ]);
}
