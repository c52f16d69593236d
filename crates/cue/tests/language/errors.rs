//! Errors: positions, paths, advice.

use setpoint_cue::{ErrorKind, Instance};

fn first(source: &str) -> setpoint_cue::Error {
    match Instance::of("t.cue", source) {
        Err(errors) => errors.first().clone(),
        Ok(instance) => instance.root().to_json().unwrap_err().first().clone(),
    }
}

#[test]
fn an_error_says_where_and_what() {
    let rows = [
        ("a: {\n\tb: 1\n}\na: b: \"x\"", ErrorKind::Conflict, "a.b", &[(2, 5), (4, 7)][..]),
        ("a: b:\n  int", ErrorKind::Incomplete, "a.b", &[(2, 3)][..]),
        ("a: ", ErrorKind::Syntax, "", &[(1, 4)][..]),
        ("a: {b: 1", ErrorKind::Syntax, "", &[(1, 9)][..]),
        ("x: 1\na: y", ErrorKind::Reference, "", &[(2, 4)][..]),
        ("a: error(\"no\")", ErrorKind::User, "a", &[(1, 9)][..]),
        ("a: b: a", ErrorKind::StructuralCycle, "a.b", &[(1, 7)][..]),
        ("p: {q?: 1}\na: p.q", ErrorKind::Absent, "a", &[(2, 5)][..]),
        ("a: [1, {b: 1 & 2}]", ErrorKind::Conflict, "a[1].b", &[(1, 12), (1, 16)][..]),
    ];
    for (source, kind, path, places) in rows {
        let error = first(source);
        assert_eq!((error.kind, error.path.as_str()), (kind, path), "{source}: {error}");
        let found: Vec<(u32, u32)> = error.positions.iter().map(|place| (place.line, place.column)).collect();
        assert_eq!(found, places, "{source}: {error}");
    }
}

#[test]
fn several_errors_are_reported_at_once() {
    let instance = Instance::of("t.cue", "a: 1 & 2, b: string, c: {d: int}").unwrap();
    let errors = instance.root().to_json().unwrap_err();
    let paths: Vec<&str> = errors.all().iter().map(|error| error.path.as_str()).collect();
    assert_eq!(paths, ["a", "b", "c.d"]);
    assert_eq!(instance.root().validate().unwrap_err().all().len(), 1);
}

#[test]
fn the_text_of_an_error_is_one_line() {
    let error = first("a: {b: int}\na: b: \"x\"").to_string();
    assert_eq!(
        error,
        "a.b: conflicting values int and \"x\"; expected int, got string (t.cue:1:8, t.cue:2:7)"
    );
}
