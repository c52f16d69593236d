//! Hostile input ends with a clear error, on the small stack of a test thread.

use setpoint_cue::{ErrorKind, Instance, Limits, Source};

fn outcome(text: &str) -> Result<(), setpoint_cue::Error> {
    let first = |errors: setpoint_cue::Errors| errors.first().clone();
    let instance = Instance::of("hostile.cue", text).map_err(first)?;
    instance.root().to_json().map(|_| ()).map_err(first)
}

fn stops(text: &str, kind: ErrorKind) {
    let error = outcome(text).expect_err(&text.chars().take(80).collect::<String>());
    assert_eq!(error.kind, kind, "{error}");
}

#[test]
fn deep_nesting_is_refused() {
    for (open, close) in
        [("[", "]"), ("{a:", "}"), ("(", ")"), ("!", ""), ("\"\\(", ")\""), ("a: ", ""), ("-", "")]
    {
        let text = format!("x: {}1{}", open.repeat(50_000), close.repeat(50_000));
        stops(&text, ErrorKind::Limit);
    }
    for operator in ["+", "*", "&&", "==", "."] {
        stops(&format!("x: a{}", format!("{operator}a").repeat(50_000)), ErrorKind::Limit);
    }
    stops(&format!("x: a{}", "[0]".repeat(50_000)), ErrorKind::Limit);
    assert!(outcome(&format!("{}{{x: 1}}", "if true ".repeat(50_000))).is_ok());
}

#[test]
fn long_flat_input_is_fine() {
    let alternatives: Vec<String> = (0..1_000).map(|n| n.to_string()).collect();
    assert!(outcome(&format!("x: ({}) & 7", alternatives.join(" | "))).is_ok());
    assert!(outcome(&format!("x: {}", vec!["int"; 5_000].join(" & ") + " & 1")).is_ok());
    let fields: Vec<String> = (0..20_000).map(|n| format!("f{n}: {n}")).collect();
    assert!(outcome(&fields.join("\n")).is_ok());
}

#[test]
fn deep_evaluation_is_refused() {
    let chain: Vec<String> = (0..5_000).map(|n| format!("a{n}: a{} + 1", n + 1)).collect();
    stops(&(chain.join("\n") + "\na5000: 1"), ErrorKind::Limit);
    let lists: Vec<String> = (0..5_000).map(|n| format!("a{n}: [for x in a{} {{x}}]", n + 1)).collect();
    stops(&(lists.join("\n") + "\na5000: [1]"), ErrorKind::Limit);
    // References alone need no depth.
    let aliases: Vec<String> = (0..300).map(|n| format!("a{n}: a{}", n + 1)).collect();
    assert!(outcome(&(aliases.join("\n") + "\na300: 1")).is_ok());
}

#[test]
fn endless_recursion_is_refused() {
    stops("f: {n: int, out: n + (f & {n: 1}).out}\nx: (f & {n: 2}).out", ErrorKind::Limit);
    stops("#F: {n: int, r: (#F & {n: n + 1}).r}\nx: (#F & {n: 0}).r", ErrorKind::Limit);
    stops("a: {for k, v in a {\"\\(k)x\": v}, b: 1}", ErrorKind::Cycle);
}

#[test]
fn exponential_disjunctions_are_refused() {
    let pairs: Vec<String> = (0..40).map(|n| format!("({{a{n}: 1}} | {{b{n}: 1}})")).collect();
    stops(&format!("x: {}", pairs.join(" & ")), ErrorKind::Limit);
    let nested = "#A: {x: #B | #C}\n#B: {y: #A | int}\n#C: {y: #A | string, z: #B | #C}\nx: #A & #B & #C";
    assert!(outcome(nested).is_err());
}

#[test]
fn exponential_data_is_refused() {
    let doubling: Vec<String> = (0..60).map(|n| format!("a{}: [a{n}, a{n}]", n + 1)).collect();
    stops(&format!("a0: 1\n{}", doubling.join("\n")), ErrorKind::Limit);
    let text: Vec<String> = (0..60).map(|n| format!("a{}: a{n} + a{n}", n + 1)).collect();
    stops(&format!("a0: \"x\"\n{}", text.join("\n")), ErrorKind::Limit);
    stops("import \"strings\"\nx: strings.Repeat(\"abcdefgh\", 100000000)", ErrorKind::Limit);
    stops("import \"list\"\nx: list.Range(0, 1000000000, 1)", ErrorKind::Limit);
    stops(
        "x: [for a in l for b in l for c in l for d in l {a}], l: [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23, 24, 25, 26, 27, 28, 29, 30, 31, 32, 33, 34, 35, 36, 37, 38, 39, 40, 41, 42, 43, 44, 45, 46, 47, 48, 49, 50]",
        ErrorKind::Limit,
    );
}

#[test]
fn a_long_source_is_refused() {
    stops(&format!("// {}", "x".repeat(3 << 20)), ErrorKind::Limit);
}

#[test]
fn limits_can_be_set() {
    let source = Source::parse("a.cue", "a: [for x in [1, 2, 3, 4, 5] {x + 1}]").unwrap();
    let limits = Limits { steps: 20, ..Limits::default() };
    let instance = Instance::builder().source(&source).limits(limits).build().unwrap();
    let error = instance.root().to_json().unwrap_err();
    assert_eq!(error.first().kind, ErrorKind::Limit);
    assert!(error.to_string().contains("more than 20 steps"), "{error}");
    // Everything afterwards fails the same way.
    assert_eq!(instance.lookup("a").unwrap_err().first().kind, ErrorKind::Limit);
}

#[test]
fn functions_charge_before_they_build() {
    let text = |package: &str, expression: &str| {
        format!("import \"{package}\"\nimport \"strings\"\nx: {expression}")
    };
    // 20 MB of references, each replaced by a megabyte.
    stops(
        &text(
            "regexp",
            "regexp.ReplaceAll(\".+\", strings.Repeat(\"a\", 1000000), strings.Repeat(\"$0\", 1000))",
        ),
        ErrorKind::Limit,
    );
    stops(&text("regexp", "regexp.FindAll(\"a\", strings.Repeat(\"a\", 1000000), -1)"), ErrorKind::Limit);
    let list = "\"[\" + strings.Repeat(\"1,\", 100000) + \"1]\"";
    stops(
        &text("encoding/json", &format!("json.Indent({list}, strings.Repeat(\" \", 100000), \"\")")),
        ErrorKind::Limit,
    );
    let long = "\"[\" + strings.Repeat(\"1,\", 1000000) + \"1]\"";
    stops(&text("encoding/json", &format!("json.Unmarshal({long})")), ErrorKind::Limit);
    stops(&text("encoding/json", &format!("json.Validate({long}, [...int])")), ErrorKind::Limit);
    stops(&text("encoding/yaml", "yaml.Unmarshal(strings.Repeat(\"- 1\\n\", 1000000))"), ErrorKind::Limit);
}

#[test]
fn aliases_do_not_multiply_data() {
    let bomb =
        "a: &a \" + strings.Repeat(\"x\", 1000000) + \"\\nb: [\" + strings.Repeat(\"*a, \", 90) + \"*a]\\n";
    let text = format!("import \"encoding/yaml\"\nimport \"strings\"\nx: yaml.Unmarshal(\"{bomb}\")");
    let error = outcome(&text).expect_err("a bomb");
    assert!(error.to_string().contains("not YAML"), "{error}");
}

#[test]
fn patterns_are_charged_by_their_automaton() {
    stops(
        "x: [for i in l for j in l {\"\\(i)\" =~ \"(a{\\(i)}b{\\(j)}){20}\"}], l: [for n in m {100 + n}], m: [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19]",
        ErrorKind::Limit,
    );
    let text = "import \"strings\"\nx: [for i in l {strings.Repeat(\"a\", 1000000) =~ \"^(a{100}){40}$\"}], l: [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12]";
    stops(text, ErrorKind::Limit);
    let error = outcome("x: \"a\" =~ \"((a{1000}){1000}){1000}\"").expect_err("a huge automaton");
    assert!(error.to_string().contains("regular expression"), "{error}");
}
