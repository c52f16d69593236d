//! Properties: unification is commutative, associative and idempotent; formatting keeps meaning; mutated sources never
//! panic.

use proptest::prelude::*;
use setpoint_cue::{Instance, Limits, Source};

/// Small values whose unifications are interesting: they share fields and types.
fn value() -> impl Strategy<Value = String> {
    let leaf = prop_oneof![
        Just("_"),
        Just("1"),
        Just("2"),
        Just("int"),
        Just("number"),
        Just("string"),
        Just("\"a\""),
        Just("\"b\""),
        Just("null"),
        Just("true"),
        Just("bool"),
        Just(">0"),
        Just("<5"),
        Just(">=2"),
        Just("!=1"),
        Just("=~\"a\""),
        Just("{}"),
        Just("[]"),
        Just("[...]"),
        Just("1.5"),
    ]
    .prop_map(String::from);
    leaf.prop_recursive(3, 16, 3, |inner| {
        let label = prop_oneof![Just("a"), Just("b"), Just("c?"), Just("[string]")];
        prop_oneof![
            prop::collection::vec((label, inner.clone()), 0..3).prop_map(|fields| {
                let fields: Vec<String> =
                    fields.iter().map(|(label, value)| format!("{label}: {value}")).collect();
                format!("{{{}}}", fields.join(", "))
            }),
            prop::collection::vec(inner.clone(), 0..3).prop_map(|items| format!("[{}]", items.join(", "))),
            prop::collection::vec(inner.clone(), 0..2).prop_map(|items| format!(
                "[{}]",
                items.into_iter().chain(["...".to_owned()]).collect::<Vec<_>>().join(", ")
            )),
            (inner.clone(), inner.clone()).prop_map(|(a, b)| format!("({a} | {b})")),
            (inner.clone(), inner.clone()).prop_map(|(a, b)| format!("(*{a} | {b})")),
            (inner.clone(), inner).prop_map(|(a, b)| format!("({a} & {b})")),
        ]
    })
}

/// Evaluates an expression into a form that does not depend on the order of fields, bounds and alternatives.
fn normal(expression: &str) -> String {
    let instance = Instance::of("p.cue", &format!("x: {expression}")).unwrap();
    let value = instance.lookup("x").unwrap();
    match value.validate() {
        Err(_) => "_|_".to_owned(),
        Ok(()) => {
            let json = value.to_json().map_err(|errors| {
                errors.all().iter().map(|error| error.path.clone()).collect::<std::collections::BTreeSet<_>>()
            });
            format!("{json:?} {}", value.kind())
        }
    }
}

proptest! {
    #[test]
    fn unification_is_commutative(a in value(), b in value()) {
        prop_assert_eq!(normal(&format!("{a} & {b}")), normal(&format!("{b} & {a}")));
    }

    #[test]
    fn unification_is_associative(a in value(), b in value(), c in value()) {
        prop_assert_eq!(normal(&format!("({a} & {b}) & {c}")), normal(&format!("{a} & ({b} & {c})")));
    }

    #[test]
    fn unification_is_idempotent(a in value()) {
        prop_assert_eq!(normal(&format!("{a} & {a}")), normal(&a));
    }

    #[test]
    fn the_order_of_declarations_does_not_matter(a in value(), b in value()) {
        let export = |text: String| Instance::of("p.cue", &text).unwrap().root().to_json().ok();
        let forth = export(format!("x: {a}\ny: x\nx: {b}\n"));
        let back = export(format!("x: {b}\nx: {a}\ny: x\n"));
        prop_assert_eq!(forth, back);
    }

    #[test]
    fn formatting_keeps_the_meaning(a in value(), b in value()) {
        let text = format!("// doc\nx: {a} @at(1)\n\"y z\": {{if true {{q: {b}}}, for k in [1] {{\"\\(k)\": k}}}}\nlet l = 1\nw: [l, -l, 'b\\x00', l[0:1], x.a]\n");
        let source = Source::parse("p.cue", &text).unwrap();
        let formatted = source.format();
        let again = Source::parse("p.cue", &formatted).unwrap();
        prop_assert_eq!(&again.format(), &formatted);
        let shown = |source: &Source| Instance::builder().source(source).build().unwrap().root().to_cue();
        prop_assert_eq!(shown(&source), shown(&again));
    }

    #[test]
    fn evaluation_is_deterministic(a in value(), b in value()) {
        let text = format!("x: {a} & {b}\ny: x | 3");
        let run = || { let instance = Instance::of("p.cue", &text).unwrap(); (instance.root().to_cue(), instance.steps()) };
        prop_assert_eq!(run(), run());
    }
}

/// Sources that use most of the language, as seeds for mutation.
const SEEDS: &[&str] = &[
    r#"import "strings"
#D: {name: string, tag: "x-\(name)", ...}
a: #D & {name: strings.ToUpper("q")}
b: [for i, v in [1, 2, 3] if v > 1 let w = v*i {w}]
c: *"x" | "y" | =~"^z" @tag(a)
d: {if c == "x" {e: 1}, [N=string]: _, (c): b[0], "\(c)s": b[1:]}
f: close({g?: int, h!: >=0 & <10}) & {h: 5}
"#,
    "let x = {p: 1}\na: X={b: x.p + 1, c: X.b, d: _|_ | null}\n_h: 'by\\x00te'\nz: a.b != _|_ && !(1 == 2) || _h == 'q'\n",
    "parameter: {n: *1 | int, l?: [...{k: string}]}\nout: {for e in parameter.l {\"\\(e.k)\": parameter.n}, #q: 1Ki}\nt: \"\"\"\n\tx \\(out.#q)\n\t\"\"\"\n",
];

const PIECES: &[&str] = &[
    "{",
    "}",
    "[",
    "]",
    "(",
    ")",
    "\"",
    "'",
    "\\(",
    ":",
    ",",
    "\n",
    "...",
    "|",
    "&",
    "*",
    "_|_",
    "_",
    "#",
    "#a",
    "a",
    "b",
    "?",
    "!",
    "=",
    "==",
    "for x in ",
    "if ",
    "let ",
    "import ",
    "1",
    "1e9",
    "0x",
    "\"\"\"",
    "//",
    "@a(",
    ".",
    "+",
    "-",
    "é",
    "len(",
    "close(",
    "or([",
    "$",
    "\\",
    "\u{0}",
];

proptest! {
    #[test]
    fn mutated_sources_never_panic_and_respect_limits(
        seed in 0..SEEDS.len(),
        edits in prop::collection::vec((any::<prop::sample::Index>(), 0..4u8, 0..PIECES.len(), 0..12usize), 1..8),
    ) {
        let mut text: Vec<char> = SEEDS[seed].chars().collect();
        for (at, action, piece, length) in edits {
            let at = at.index(text.len() + 1);
            let end = (at + length).min(text.len());
            match action {
                0 => { text.drain(at..end); }
                1 => { text.splice(at..at, PIECES[piece].chars()); }
                2 => { text.splice(at..end, PIECES[piece].chars()); }
                _ => { let copy: Vec<char> = text[at..end].to_vec(); text.splice(at..at, copy); }
            }
        }
        let text: String = text.into_iter().collect();
        let limits = Limits { steps: 50_000, nodes: 20_000, ..Limits::default() };
        if let Ok(source) = Source::parse_with("fuzz.cue", &text, &limits) {
            let _ = Source::parse("formatted.cue", &source.format());
            if let Ok(instance) = Instance::builder().source(&source).limits(limits).build() {
                let _ = instance.root().to_json();
                let _ = instance.root().validate();
                let _ = instance.root().schema();
                let _ = instance.root().to_cue();
                prop_assert!(instance.steps() < 400_000, "{} steps", instance.steps());
            }
        }
    }
}
