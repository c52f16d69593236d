//! The standard library.

use super::{check, export};

#[test]
fn builtins_need_no_import() {
    check(&[
        (
            "a: len([1, 2]), b: len(\"héllo\"), c: len({x: 1, y?: 2}), d: len('ab')",
            r#"{"a": 2, "b": 6, "c": 1, "d": 2}"#,
        ),
        ("a: and([>1, <5]) & 3", r#"{"a": 3}"#),
        ("l: [\"x\", \"y\"], a: or(l) & \"y\"", r#"{"l": ["x", "y"], "a": "y"}"#),
        ("a: or([])", "!empty list"),
        ("a: len(5)", "!has no length"),
        ("a: {x: 1} & matchN(1, [{x: 1}, {x: 2}])", r#"{"a": {"x": 1}}"#),
        ("a: 3 & matchN(0, [>5])", r#"{"a": 3}"#),
        ("a: 6 & matchN(0, [>5])", "!does not satisfy matchN"),
        ("a: {x: 3, y: 5} & matchIf({x!: >2}, {y!: 5}, {y!: 1})", r#"{"a": {"x": 3, "y": 5}}"#),
        ("a: {x: 3, y: 6} & matchIf({x!: >2}, {y!: 5}, {y!: 1})", "!does not satisfy matchIf"),
    ]);
}

/// Checks calls of one package: an expression and its JSON.
fn calls(package: &str, rows: &[(&str, &str)]) {
    for (call, expected) in rows {
        let source = format!("import \"{package}\"\nx: {call}");
        check(&[(
            &source,
            &if expected.starts_with('!') {
                (*expected).to_owned()
            } else {
                format!("{{\"x\": {expected}}}")
            },
        )]);
    }
}

#[test]
fn strings_are_taken_apart_and_joined() {
    calls(
        "strings",
        &[
            (r#"strings.Join(["a", "b"], "-")"#, r#""a-b""#),
            (r#"strings.Split("a,b", ",")"#, r#"["a", "b"]"#),
            (r#"strings.SplitN("a,b,c", ",", 2)"#, r#"["a", "b,c"]"#),
            (r#"strings.ToUpper("ab") + strings.ToLower("CD")"#, r#""ABcd""#),
            (r#"strings.Contains("abc", "b")"#, "true"),
            (r#"strings.HasPrefix("abc", "ab") && strings.HasSuffix("abc", "bc")"#, "true"),
            (r#"strings.Replace("aaa", "a", "b", 2)"#, r#""bba""#),
            (r#"strings.Replace("aaa", "a", "b", -1)"#, r#""bbb""#),
            (r#"strings.TrimPrefix("git://x", "git://")"#, r#""x""#),
            (r#"strings.TrimSuffix("x.git", ".git")"#, r#""x""#),
            (r#"strings.TrimSpace("  x ")"#, r#""x""#),
            (r#"strings.Trim("--x--", "-")"#, r#""x""#),
            (r#"strings.Repeat("ab", 2)"#, r#""abab""#),
            (r#"strings.Fields(" a  b ")"#, r#"["a", "b"]"#),
            (r#"strings.Index("abc", "c")"#, "2"),
            (r#"strings.Count("cheese", "e")"#, "3"),
            (r#"strings.ToTitle("hello world")"#, r#""Hello World""#),
            (r#"strings.SliceRunes("héllo", 1, 3)"#, r#""él""#),
            (r#"strings.MinRunes(2) & "abc""#, r#""abc""#),
            (r#"strings.MaxRunes(2) & "abc""#, "!does not satisfy strings.MaxRunes(2)"),
            (r#"strings.Join("a", ",")"#, "!argument 1 must be a list"),
            (r#"strings.ToUpper(1)"#, "!in call to strings.ToUpper: argument 1 must be a string"),
            (r#"strings.ToUpper()"#, "!takes 1 arguments, not 0"),
            (r#"strings.Nope("x")"#, "!has no `Nope`"),
        ],
    );
}

#[test]
fn numbers_become_text_and_back() {
    calls(
        "strconv",
        &[
            ("strconv.FormatInt(255, 16)", r#""ff""#),
            ("strconv.FormatInt(-8080, 10)", r#""-8080""#),
            ("strconv.FormatBool(true)", r#""true""#),
            ("strconv.Atoi(\"42\")", "42"),
            ("strconv.ParseInt(\"ff\", 16, 64)", "255"),
            ("strconv.ParseInt(\"300\", 10, 8)", "!does not fit into 8 bits"),
            ("strconv.ParseBool(\"t\")", "true"),
            ("strconv.ParseFloat(\"1.5\", 64)", "1.5"),
            ("strconv.FormatFloat(1.5, \"f\", 2, 64)", r#""1.50""#),
            ("strconv.Quote(\"a\\\"b\")", r#""\"a\\\"b\"""#),
            ("strconv.Atoi(\"x\")", "!is not an int"),
        ],
    );
}

#[test]
fn lists_are_rearranged() {
    calls(
        "list",
        &[
            ("list.Concat([[1], [2, 3]])", "[1, 2, 3]"),
            ("list.Range(0, 5, 2)", "[0, 2, 4]"),
            ("list.Range(3, 0, -1)", "[3, 2, 1]"),
            ("list.Range(0, 1, 0)", "!step must be non zero"),
            ("list.Contains([1, 2], 2)", "true"),
            ("list.Sum([1, 2.5])", "3.5"),
            ("list.Max([1, 3, 2])", "3"),
            ("list.Avg([1, 2, 3])", "2"),
            ("list.FlattenN([1, [2, [3]]], 1)", "[1, 2, [3]]"),
            ("list.FlattenN([1, [2, [3]]], -1)", "[1, 2, 3]"),
            ("list.Reverse([1, 2])", "[2, 1]"),
            ("list.Slice([1, 2, 3], 1, 3)", "[2, 3]"),
            ("list.Take([1, 2], 1) + list.Drop([1, 2], 1)", "[1, 2]"),
            ("list.Repeat([1], 3)", "[1, 1, 1]"),
            ("list.SortStrings([\"b\", \"a\"])", r#"["a", "b"]"#),
            ("list.Sort([3, 1, 2], list.Descending)", "[3, 2, 1]"),
            ("list.Sort([{n: 2}, {n: 1}], {x: {}, y: {}, less: x.n < y.n})", r#"[{"n": 1}, {"n": 2}]"#),
            ("list.UniqueItems() & [1, 2]", "[1, 2]"),
            ("list.UniqueItems() & [1, 1]", "!does not satisfy list.UniqueItems"),
            ("[1] & list.MinItems(2)", "!does not satisfy list.MinItems(2)"),
            ("list.MaxItems(2) & [1]", "[1]"),
        ],
    );
}

#[test]
fn encodings_round_trip() {
    calls(
        "encoding/json",
        &[
            ("json.Marshal({a: [1, null]})", r#""{\"a\":[1,null]}""#),
            ("json.Marshal({b: 1, a: {d: \"\", c: {}}})", r#""{\"b\":1,\"a\":{\"d\":\"\",\"c\":{}}}""#),
            ("json.MarshalStream([{b: 1, a: 2}, []])", r#""{\"b\":1,\"a\":2}\n[]\n""#),
            ("json.Unmarshal(\"{\\\"a\\\": 1}\").a", "1"),
            ("json.Unmarshal(\"{\")", "!not JSON"),
            ("json.Marshal({a: string})", "!not concrete"),
            ("json.Indent(json.Marshal({a: 1}), \"\", \" \")", r#""{\n \"a\": 1\n}""#),
        ],
    );
    calls(
        "encoding/yaml",
        &[
            ("yaml.Marshal({b: [1, {c: \"x\"}], a: \"z\"})", r#""b:\n  - 1\n  - c: x\na: z\n""#),
            ("yaml.Unmarshal(\"a: [1, 2]\").a", "[1, 2]"),
        ],
    );
    calls(
        "encoding/base64",
        &[
            ("base64.Encode(null, \"abc\")", r#""YWJj""#),
            ("\"\\(base64.Decode(null, \"YWJj\"))\"", r#""abc""#),
            ("base64.Decode(null, \"?\")", "!not base64"),
        ],
    );
    calls(
        "encoding/hex",
        &[("hex.Encode(\"az\")", r#""617a""#), ("\"\\(hex.Decode(\"617a\"))\"", r#""az""#)],
    );
    let source = "import (\"crypto/sha256\", \"crypto/md5\", \"crypto/sha1\", \"encoding/hex\")
a: len(sha256.Sum256(\"abc\"))
b: hex.Encode(md5.Sum(\"abc\"))
c: hex.Encode(sha1.Sum(\"abc\"))";
    let json = export(source).unwrap();
    assert_eq!(json["a"], 32);
    assert_eq!(json["b"], "900150983cd24fb0d6963f7d28e17f72");
    assert_eq!(json["c"], "a9993e364706816aba3e25717850c26c9cd0d89d");
}

#[test]
fn other_packages_work() {
    calls(
        "math",
        &[
            ("math.Floor(2.7)", "2"),
            ("math.Floor(-2.1)", "-3"),
            ("math.Ceil(2.1)", "3"),
            ("math.Round(2.5)", "3"),
            ("math.RoundToEven(2.5)", "2"),
            ("math.Abs(-2)", "2"),
            ("math.Pow(2, 10)", "1024"),
            ("math.Sqrt(16)", "4.0"),
            ("math.MultipleOf(6, 3)", "true"),
            ("math.Sqrt(-1)", "!not a number"),
        ],
    );
    calls(
        "regexp",
        &[
            ("regexp.Match(\"^a\", \"abc\")", "true"),
            ("regexp.FindSubmatch(\"(.)b\", \"abc\")", r#"["ab", "a"]"#),
            ("regexp.ReplaceAll(\"b+\", \"abbc\", \"x\")", r#""axc""#),
            ("regexp.Match(\"(\", \"x\")", "!not a regular expression"),
        ],
    );
    calls(
        "path",
        &[
            ("path.Base(\"/a/b.txt\")", r#""b.txt""#),
            ("path.Dir(\"/a/b\")", r#""/a""#),
            ("path.Join([\"a\", \"../b\"])", r#""b""#),
            ("path.Ext(\"a.b.c\")", r#"".c""#),
        ],
    );
    calls(
        "net",
        &[
            ("net.IPv4 & \"10.0.0.1\"", r#""10.0.0.1""#),
            ("net.IPv4() & \"::1\"", "!does not satisfy net.IPv4"),
            ("net.FQDN(\"a.example\")", "true"),
            ("net.IPCIDR(\"10.0.0.0/8\")", "true"),
            ("net.QueryEscape(\"a b&c\")", r#""a+b%26c""#),
        ],
    );
    calls(
        "time",
        &[
            ("time.Duration & \"1h\"", r#""1h""#),
            ("time.ParseDuration(\"1m\")", "60000000000"),
            ("time.Time & \"2024-01-01\"", "!does not satisfy time.Time"),
            ("time.Unix(0, 0)", r#""1970-01-01T00:00:00Z""#),
            ("time.Nope", "!has no `Nope`"),
        ],
    );
    calls(
        "struct",
        &[
            ("struct.MinFields(1) & {a: 1}", r#"{"a": 1}"#),
            ("struct.MaxFields(1) & {a: 1, b: 2}", "!does not satisfy struct.MaxFields(1)"),
        ],
    );
    calls("tool/exec", &[("1", "!package \"tool/exec\" is not known")]);
}
