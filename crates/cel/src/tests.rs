//! Expressions with their results or error messages.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::json;

use super::*;

fn declared(ty: Type) -> Arc<Declared> {
    Arc::new(Declared::plain(ty))
}

fn environment() -> Environment {
    let fields = [
        ("name", Declared::plain(Type::String)),
        ("count", Declared::plain(Type::Int)),
        ("ratio", Declared::plain(Type::Double)),
        (
            "tags",
            Declared {
                element: Some(declared(Type::String)),
                max_elements: 10,
                ..Declared::plain(Type::list(Type::String))
            },
        ),
        ("labels", Declared::plain(Type::map(Type::String, Type::String))),
    ];
    let fields: BTreeMap<String, Declared> =
        fields.into_iter().map(|(name, field)| (name.into(), field)).collect();
    let object = Arc::new(Object { name: "self".into(), fields });
    Environment::new().with("self", declared(Type::Object(object))).with("any", declared(Type::Dyn))
}

fn variables() -> Variables {
    let json = json!({"name": "web-1", "count": 3, "ratio": 0.5, "tags": ["a", "b"], "labels": {"x": "1"}});
    let declared = environment().variables["self"].clone();
    let any = Val::of_json(&json!({"list": [1, 2, 3], "text": "t"}));
    Variables::from([("self", Val::typed(&json, &declared)), ("any", any)])
}

fn value(text: &str) -> Result<Val, EvalError> {
    let program = environment().compile(text).unwrap_or_else(|why| panic!("{text}: {why}"));
    program.evaluate(&variables(), CALL_LIMIT).0
}

#[test]
fn expressions_hold() {
    for text in [
        "1 + 2 * 3 == 7",
        "-2 - 3 == -5 && 7 % 4 == 3",
        "self.count > 2 && self.ratio < 1.0",
        "self.count > 2.5",
        "self.name.startsWith('web') && self.name.matches('^[a-z]+-[0-9]$')",
        "!has(any.text.x)",
        "has(self.name) && !has(self.labels.y) && self.labels['x'] == '1'",
        "self.tags.all(t, t.size() == 1) && self.tags.exists(t, t == 'b')",
        "self.tags.exists_one(t, t == 'a') && self.tags.map(t, t + '!') == ['a!', 'b!']",
        "self.tags.filter(t, t != 'a') == ['b'] && self.tags.map(t, t == 'b', t) == ['b']",
        "'a' in self.tags && 'x' in self.labels && !('z' in self.tags)",
        "self.count == 3 ? true : false",
        "type(self.count) == int && type('a') == string",
        "any.list.sum() == 6 && any.list.max() == 3 && any.list.isSorted()",
        "[1, 2, 3].indexOf(2) == 1 && [3, 1, 2].sort() == [1, 2, 3] && [1, 1].distinct() == [1]",
        "'a,b'.split(',') == ['a', 'b'] && ['a', 'b'].join('-') == 'a-b'",
        "'Hello'.lowerAscii() == 'hello' && 'abc'.substring(1) == 'bc' && 'abc'.replace('b', 'x') == 'axc'",
        "'%s has %d'.format([dyn('a'), dyn(3)]) == 'a has 3'",
        r#"'%s %s'.format([dyn([1, 2]), dyn(['a'])]) == '[1, 2] ["a"]'"#,
        r#"'%s'.format([{'b': 1.5, 'a': 2.0}]) == '{"a":2.000000, "b":1.500000}'"#,
        "'%.2f %e'.format([1234567.891, 1052.032911275]) == '1,234,567.89 1.052033\u{202f}×\u{202f}10⁰³'",
        "'%x %X %o %b'.format([255, 255, 8, -5]) == 'ff FF 10 -101'",
        "'é %s 100%%'.format(['ü']) == 'é ü 100%'",
        r#"'%s %s'.format([dyn(duration('90s')), dyn([duration('90s')])]) == '90s [duration("90s")]'"#,
        "int('3') == 3 && string(3) == '3' && double('1.5') == 1.5 && uint(3) == 3u",
        "duration('1h') > duration('59m') && timestamp('2024-01-02T03:04:05Z').getFullYear() == 2024",
        "timestamp('2024-01-01T00:00:00Z') + duration('24h') == timestamp('2024-01-02T00:00:00Z')",
        "self.?name.hasValue() && !any.?absent.hasValue() && any.?absent.orValue('d') == 'd'",
        "optional.of(1).optMap(x, x + 1).value() == 2 && !optional.none().optMap(x, x).hasValue()",
        "optional.of(1).optMap(x, x + 1).optMap(y, y + 1).value() == 3",
        "['bb', 'a'].sortBy(x, x.size()) == ['a', 'bb']",
        "isIP('10.0.0.1') && !isIP('x') && ip('::1').isLoopback() && cidr('10.0.0.0/8').containsIP('10.1.2.3')",
        "url('https://a.com:80/p?x=1').getPort() == '80' && isURL('/path') && !isURL('../x')",
        "quantity('1Gi').isGreaterThan(quantity('1G')) && quantity('50k').asInteger() == 50000",
        "semver('1.2.3').isLessThan(semver('1.10.0')) && isSemver('1.2.3-alpha+b')",
        "!format.dns1123Label().validate('abc').hasValue() && format.dns1123Label().validate('ABC').hasValue()",
        "sets.contains([1, 2, 3], [2]) && sets.intersects([1], [1, 2]) && sets.equivalent([1, 2], [2, 1, 1])",
        "'foo123bar'.find('[0-9]+') == '123' && 'a1b2'.findAll('[0-9]') == ['1', '2']",
        "[1, 2].all(i, v, i < v) && {'a': 1}.transformMap(k, v, v + 1) == {'a': 2}",
        "{'a': 1, 'b': 2}.all(k, k != 'c') && {'a': 1}.size() == 1",
        "(1 / 0 > 0) || true",
        "[0, 2].exists(x, 4 / x == 2)",
        "self.tags + ['c'] == ['a', 'b', 'c']",
        "dyn(1) == 1.0",
        "sets.contains([quantity('1')], [quantity('1000m')]) && sets.contains([dyn(1), dyn('a')], [dyn(1.0)])",
        "['b', 'a', 'b'].distinct() == ['b', 'a'] && [dyn([1]), dyn([1.0])].distinct().size() == 1",
        "'añb'.indexOf('b') == 2 && 'añbañb'.indexOf('ñ', 2) == 4 && 'abc'.indexOf('') == 0 && 'a'.indexOf('b') == -1",
        "'añbañb'.lastIndexOf('ñ') == 4 && 'añbañb'.lastIndexOf('ñ', 3) == 1 && 'añbañb'.lastIndexOf('ñ', 4) == 4",
        "'abab'.lastIndexOf('ab', 1) == 0 && 'abc'.lastIndexOf('') == 3 && 'abc'.lastIndexOf('', 1) == 1",
        "'aaa'.replace('a', 'b', 2) == 'bba' && 'ab'.replace('', '-') == '-a-b-'",
        "lists.range(100).map(i, [dyn(1), dyn('a'), dyn(2.0), dyn(true), dyn(0.0 / 0.0)][i % 5]).sort().size() == 100",
        "b'abc' == bytes('abc') && r'\\d' == '\\\\d'",
    ] {
        assert_eq!(value(text), Ok(Val::Bool(true)), "{text}");
    }
}

#[test]
fn missing_values_have_a_reason() {
    for (text, why) in [
        ("1 / 0 == 1", "division by zero"),
        ("any.nope == 1", "no such key: nope"),
        ("any.text.x == 1", "no such key: x"),
        ("self.tags[5] == 'x'", "index out of bounds: 5"),
        ("any.text + 1 == 2", "no such overload"),
        ("quantity('x').sign() == 1", "quantities must match the regular expression"),
    ] {
        let found = value(text).unwrap_err().to_string();
        assert!(found.starts_with(why), "{text}: {found}");
    }
}

#[test]
fn mistakes_are_shown_where_they_are() {
    for (text, expected) in [
        ("self.zz == 1", "ERROR: <input>:1:5: undefined field 'zz'\n | self.zz == 1\n | ....^"),
        ("nope", "ERROR: <input>:1:1: undeclared reference to 'nope' (in container '')\n | nope\n | ^"),
        (
            "self.count == 'a'",
            "ERROR: <input>:1:12: found no matching overload for '_==_' applied to '(int, string)'\n | self.count == 'a'\n | ...........^",
        ),
        (
            "self.a ==",
            "ERROR: <input>:1:10: Syntax error: mismatched input '<EOF>' expecting {'[', '{', '(', '.', '-', '!', 'true', 'false', 'null', NUM_FLOAT, NUM_INT, NUM_UINT, STRING, BYTES, IDENTIFIER}\n | self.a ==\n | .........^",
        ),
        (
            "self.",
            "ERROR: <input>:1:6: Syntax error: no viable alternative at input '.'\n | self.\n | .....^",
        ),
        (
            "self.a =",
            "ERROR: <input>:1:8: Syntax error: token recognition error at: '='\n | self.a =\n | .......^",
        ),
        (
            "self.a = 1",
            "ERROR: <input>:1:8: Syntax error: token recognition error at: '= '\n | self.a = 1\n | .......^\nERROR: <input>:1:10: Syntax error: extraneous input '1' expecting <EOF>\n | self.a = 1\n | .........^",
        ),
        (
            "true |#",
            "ERROR: <input>:1:6: Syntax error: token recognition error at: '|#'\n | true |#\n | .....^",
        ),
        (
            "size(",
            "ERROR: <input>:1:6: Syntax error: mismatched input '<EOF>' expecting {'[', '{', '(', ')', '.', '-', '!', 'true', 'false', 'null', NUM_FLOAT, NUM_INT, NUM_UINT, STRING, BYTES, IDENTIFIER}\n | size(\n | .....^",
        ),
    ] {
        assert_eq!(environment().compile(text).unwrap_err().to_string(), expected);
    }
    for text in [
        "[1, 'a'].size() == 2",
        "self.name.nope()",
        "1 + 'a' == 2",
        "self.count.all(x, true)",
        "has(self)",
        "'a'.matches('(')",
        "duration('x') == duration('1s')",
    ] {
        assert!(environment().compile(text).is_err(), "{text}");
    }
}

#[test]
fn mistakes_are_named_as_in_v1_34() {
    let syntax = |what: &str| format!("Syntax error: {what}");
    let no_overload = |of: &str| format!("found no matching overload for {of}");
    for (text, at, what) in [
        ("size(1) == 1", 5, no_overload("'size' applied to '(int)'")),
        ("self.name.startsWith(1)", 21, no_overload("'startsWith' applied to 'string.(int)'")),
        ("'a'.nope()", 9, "undeclared reference to 'nope' (in container '')".into()),
        ("[1].exists_one(x, 1)", 15, no_overload("'_?_:_' applied to '(int, int, int)'")),
        ("duration('1h') + 1", 16, no_overload("'_+_' applied to '(duration, int)'")),
        ("self.count && true", 5, "expected type 'bool' but found 'int'".into()),
        ("[1].all(x, x)", 12, "expected type 'bool' but found 'int'".into()),
        ("'%d %s'.format([1])", 15, "index 1 out of range".into()),
        (
            "'%d'.format(['a'])",
            14,
            "error during formatting: decimal clause can only be used on integers, was given string".into(),
        ),
        ("'%s'.format([optional.of(1)])", 25, clauses::misfit(b's', "optional_type").unwrap()),
        ("'%y'.format([1])", 12, "could not parse formatting clause: unrecognized formatting clause \"y\"".into()),
        ("'%'.format([1])", 11, "unexpected end of string".into()),
        (
            "'%.f'.format([1.0])",
            13,
            "could not parse formatting clause: error while parsing precision: error while converting precision to integer: strconv.Atoi: parsing \"\": invalid syntax".into(),
        ),
        ("'100%%'.format([1])", 15, "too many arguments supplied to string.format (expected 0, got 1)".into()),
        ("[dyn(1), 2].size() == 2", 10, "expected type 'dyn' but found 'int'".into()),
        ("{'a': dyn(1), 'b': 2}.size() == 2", 20, "expected type 'dyn' but found 'int'".into()),
        ("has(self.name.size())", 19, "invalid argument to has() macro".into()),
        ("self.`a`", 6, "unsupported syntax: '`'".into()),
        ("(true", 6, syntax("missing ')' at '<EOF>'")),
        ("[1,", 4, syntax("missing ']' at '<EOF>'")),
        ("{1 2}", 4, syntax("missing ':' at '2'")),
        ("[1 2]", 4, syntax("extraneous input '2' expecting {']', ','}")),
        ("size(1 2)", 8, syntax("extraneous input '2' expecting ')'")),
        ("[1,,2]", 4, syntax("mismatched input ',' expecting ']'")),
        ("{1: 2 \"b\": 3}", 7, syntax("mismatched input '\"b\"' expecting {'}', ','}")),
        ("true and false", 6, syntax("mismatched input 'and' expecting <EOF>")),
        ("'a' \"b\"", 5, syntax("extraneous input '\"b\"' expecting <EOF>")),
    ] {
        let found = environment().compile(text).unwrap_err().to_string();
        let expected = format!("ERROR: <input>:1:{at}: {what}\n");
        assert!(found.starts_with(&expected), "{text}: {found}");
    }
    let several = environment().compile("x.y(z)").unwrap_err().to_string();
    let places: Vec<&str> = several.split("ERROR: <input>:1:").skip(1).map(|one| &one[..1]).collect();
    assert_eq!(places, ["1", "4", "5"], "{several}");
    let trailing = environment().compile("size([1],) == 1").unwrap_err().to_string();
    assert!(trailing.starts_with("ERROR: <input>:1:10: Syntax error: mismatched input ')'"), "{trailing}");
    assert_eq!(value("[,].size() == 0 && {,}.size() == 0 && [1,].size() == 1"), Ok(Val::Bool(true)));
}

#[test]
fn costs_are_those_of_v1_34() {
    for (text, estimated, actual) in [
        ("true", 0, 0),
        ("self.count > 2", 3, 3),
        ("self.name.startsWith('web')", 3, 3),
        ("[1, 2, 3].all(x, x > 0)", 10 + 3 * 5 + 1, 10 + 3 * 5 + 1),
        ("self.tags.all(t, true)", 2 + 10 * 3 + 1, 2 + 2 * 3 + 1),
    ] {
        let program = environment().compile(text).unwrap();
        assert_eq!(program.max_cost(), estimated, "{text}: the most");
        assert_eq!(program.evaluate(&variables(), CALL_LIMIT).1, actual, "{text}");
    }
}

/// Returns an environment in which `self` is an object with these fields.
fn of_fields(fields: impl IntoIterator<Item = (&'static str, Declared)>) -> Environment {
    let fields = fields.into_iter().map(|(name, field)| (name.to_owned(), field)).collect();
    Environment::new().with("self", declared(Type::Object(Arc::new(Object { name: "self".into(), fields }))))
}

/// Expressions whose cost depends on an unbounded size are rejected.
const UNBOUNDED: u64 = u64::MAX / 100;

fn text_of(max_elements: u64) -> Declared {
    Declared { max_elements, ..Declared::plain(Type::String) }
}

fn list_of(max_elements: u64, element: Declared) -> Declared {
    let ty = Type::list(element.ty.clone());
    Declared { max_elements, element: Some(Arc::new(element)), ..Declared::plain(ty) }
}

fn map_of(max_elements: u64, element: Declared) -> Declared {
    let ty = Type::map(Type::String, element.ty.clone());
    Declared { max_elements, element: Some(Arc::new(element)), ..Declared::plain(ty) }
}

#[test]
fn functions_on_the_keys_of_maps_cost_next_to_nothing() {
    let labels = Environment::new().with("self", Arc::new(map_of(100, text_of(u64::MAX))));
    for (text, estimated) in [
        (r#"self.all(k, !k.contains("*"))"#, 1 + 100 * (1 + 2 + 2) + 1 - 100),
        ("self.all(k, k.matches('^[a-z]+$'))", 1 + 100 * (2 + 2 + 2) - 100 + 1),
        ("self.all(k, k.find('a') == 'b')", 1 + 100 * (2 + 2 + 1) - 100 + 1),
        ("self.all(k, k.split('-').size() == 1)", 1 + 100 * (2 + 2 + 1 + 1) - 100 + 1),
        ("self.all(k, v, k.contains('a'))", 1 + 100 * (2 + 2) - 100 + 1),
    ] {
        let cost = labels.compile(text).unwrap().max_cost();
        assert!(cost < 1_000, "{text}: {cost} instead of about {estimated}");
    }
    let values = labels.compile("self.all(k, self[k].contains('a'))").unwrap();
    assert!(values.max_cost() > UNBOUNDED, "values are not bounded");
}

#[test]
fn functions_of_sets_and_lists_cost_what_they_look_at() {
    let environment = of_fields([("a", list_of(10, text_of(8))), ("b", list_of(20, text_of(8)))]);
    let given = json!({"a": ["x", "y"], "b": ["z"]});
    let this = Val::typed(&given, &environment.variables["self"]);
    let variables = Variables::from([("self", this)]);
    for (text, estimated, actual) in [
        ("sets.contains(self.a, self.b)", 4 + 1 + 200, 4 + 1 + 2),
        ("sets.intersects(self.a, self.b)", 4 + 1 + 200, 4 + 1 + 2),
        ("sets.equivalent(self.a, self.b)", 4 + 1 + 400, 4 + 1 + 4),
        ("self.a.reverse().size() == 2", 2 + 11 + 10 + 2, 2 + 11 + 2 + 2),
        ("self.a.slice(0, 1).size() == 1", 2 + 11 + 1 + 2, 2 + 11 + 1 + 2),
        ("self.a.distinct().size() == 2", 2 + 11 + 200 + 2, 2 + 11 + 8 + 2),
        ("self.a.sort().size() == 2", 2 + 11 + 210 + 2, 2 + 11 + 8 + 2),
        ("lists.range(5).size() == 5", 11 + 5 + 2, 11 + 5 + 2),
        ("[[1], [2]].flatten().size() == 2", 30 + 11 + 2 + 2, 30 + 11 + 2 + 2),
    ] {
        let program = environment.compile(text).unwrap_or_else(|why| panic!("{text}: {why}"));
        assert_eq!(program.max_cost(), estimated, "{text}: the most");
        assert_eq!(program.evaluate(&variables, CALL_LIMIT).1, actual, "{text}");
    }
}

#[test]
fn the_size_of_what_has_no_path_is_not_that_of_self() {
    let environment = Environment::new().with("self", Arc::new(list_of(5, text_of(8))));
    for text in ["'a,b'.split(',').join('-') == 'a'", "'a,b'.split(',').indexOf('a') == 0"] {
        assert!(environment.compile(text).unwrap().max_cost() > UNBOUNDED, "{text}");
    }
}

#[test]
fn a_loop_is_estimated_by_the_path_that_was_taken_last() {
    let item = |fields: [(&str, Declared); 2]| {
        let fields = fields.into_iter().map(|(name, field)| (name.to_owned(), field)).collect();
        Declared {
            max_elements: 0,
            ..Declared::plain(Type::Object(Arc::new(Object { name: "i".into(), fields })))
        }
    };
    let rule = item([
        ("matches", list_of(50, text_of(8))),
        ("weight", Declared { max_elements: 0, ..Declared::plain(Type::Int) }),
    ]);
    let environment = of_fields([("rules", list_of(3, rule))]);
    let cost = |text: &str| environment.compile(text).unwrap().max_cost();
    let inner = cost("self.rules.all(r, r.matches.all(m, m == 'a'))");
    assert!(inner > 3 * 50, "{inner}");
    let aliased = cost("self.rules.all(r, r.matches.all(m, m == 'a' && r.weight > 0))");
    assert!(aliased < 3 * 50, "{aliased}");
}

#[test]
fn reserved_words_name_fields_as_they_are_and_escaped() {
    use super::escape::RESERVED;
    for word in RESERVED {
        let environment = of_fields([]);
        let Type::Object(object) = &environment.variables["self"].ty else { unreachable!() };
        let fields = BTreeMap::from([(format!("__{word}__"), text_of(8))]);
        let object = Arc::new(Object { name: object.name.clone(), fields });
        let environment = Environment::new().with("self", declared(Type::Object(object)));
        let this = Val::typed(&json!({word: "x"}), &environment.variables["self"]);
        let variables = Variables::from([("self", this)]);
        let value =
            |text: &str| environment.compile(text).map(|program| program.evaluate(&variables, CALL_LIMIT).0);
        let escaped = value(&format!("has(self.__{word}__) && self.__{word}__ == 'x'"));
        assert_eq!(escaped, Ok(Ok(Val::Bool(true))), "{word}");
        let plain = value(&format!("has(self.{word}) && self.{word} == 'x' && self.?{word}.hasValue()"));
        if !["in", "true", "false", "null"].contains(&word) {
            assert_eq!(plain, Ok(Ok(Val::Bool(true))), "{word}");
            continue;
        }
        let why = value(&format!("!has(self.{word})")).unwrap_err().to_string();
        let lines: Vec<&str> = why.lines().filter(|line| line.starts_with("ERROR")).collect();
        let syntax = format!("ERROR: <input>:1:11: Syntax error: no viable alternative at input '.{word}'");
        assert_eq!(lines, ["ERROR: <input>:1:6: invalid argument to has() macro", &syntax], "{word}");
    }
}

#[test]
fn the_size_of_a_reserved_word_is_not_known_unless_it_is_escaped() {
    let environment = of_fields([("__namespace__", text_of(8))]);
    let cost = |text: &str| environment.compile(text).unwrap().max_cost();
    assert!(cost("self.namespace.contains('a')") > UNBOUNDED);
    assert_eq!(cost("self.__namespace__.contains('a')"), 3);
}

#[test]
fn null_compares_with_all_that_can_be_absent() {
    for text in [
        "format.dns1123Label().validate(self.name) == null",
        "null == format.dns1123Label().validate(self.name)",
        "self != null && null != self",
        "duration('1s') != null && null != timestamp('2024-01-01T00:00:00Z')",
        "optional.of(1) != null",
    ] {
        environment().compile(text).unwrap_or_else(|why| panic!("{text}: {why}"));
    }
    for text in ["self.count == null", "null == self.name", "self.tags == null", "self.labels == null"] {
        assert!(environment().compile(text).is_err(), "{text}");
    }
}

#[test]
fn the_more_general_of_two_matching_types_wins() {
    for text in [
        "(true ? self.count : any) == 'a' || true",
        "(true ? any : self.count) == 'a' || true",
        "(true ? [1] : [any]) == ['a'] || true",
    ] {
        assert_eq!(value(text), Ok(Val::Bool(true)), "{text}");
    }
}

#[test]
fn a_field_that_is_null_is_absent() {
    let environment = of_fields([("name", text_of(8))]);
    let this = Val::typed(&json!({"name": null}), &environment.variables["self"]);
    let program = environment.compile("!has(self.name)").unwrap();
    let (value, _) = program.evaluate(&Variables::from([("self", this)]), CALL_LIMIT);
    assert_eq!(value, Ok(Val::Bool(true)));
}

#[test]
fn a_type_is_taken_to_be_as_large_as_the_value() {
    let text = Declared { max_elements: 10, ..Declared::plain(Type::Dyn) };
    let program = Environment::new().with("self", Arc::new(text)).compile("type(self) == int").unwrap();
    assert_eq!(program.max_cost(), 4);
}

#[test]
fn an_evaluation_ends_when_its_budget_is_spent() {
    let text = "lists.range(1000).all(x, lists.range(1000).all(y, x * y >= 0))";
    let (value, cost) = environment().compile(text).unwrap().evaluate(&variables(), CALL_LIMIT);
    assert_eq!(value, Err(EvalError::TooExpensive));
    assert!(cost <= CALL_LIMIT + 100);
}

#[test]
fn an_expression_that_nests_too_deep_is_refused() {
    let chains = [".a".repeat(5_000), "+1".repeat(5_000), " && true".repeat(40_000)];
    for chain in chains {
        assert!(environment().compile(&format!("any{chain}")).is_err());
    }
    let nested = format!("{}true{}", "(".repeat(5_000), ")".repeat(5_000));
    assert!(environment().compile(&nested).is_err());
    let many = format!("true{}", " && true".repeat(1_000));
    assert!(environment().compile(&many).is_ok(), "many terms of one operator nest little");
    let deep = format!("1{} == 241 && {}true{}", "+1".repeat(240), "(".repeat(45), ")".repeat(45));
    assert_eq!(value(&deep), Ok(Val::Bool(true)));
}

#[test]
fn the_variables_of_an_expression_are_known() {
    let program = environment().compile("self.count == 1 || [1].exists(any, any == 1)").unwrap();
    assert!(program.uses("self") && !program.uses("any"));
    assert_eq!(*program.output(), Type::Bool);
    let fields = |text: &str| {
        let program = environment().compile(text).unwrap();
        program.fields_of("self").map(|fields| fields.join(" "))
    };
    assert_eq!(
        fields("self.count == 1 || has(self.name) || [1].all(x, self.?name.hasValue())").unwrap(),
        "count name name"
    );
    assert_eq!(fields("1 == 1").unwrap(), "");
    assert_eq!(fields("self.count == 1 && [self].size() == 1"), None);
}

/// The types of values share their parts, too.
#[test]
fn types_that_double_with_each_step_are_refused() {
    let text = format!("optional.of(1){}", ".optMap(a, {a: a})".repeat(40));
    let why = environment().compile(&text).unwrap_err().to_string();
    assert!(why.contains("the type of the expression has more than 500 parts"), "{why}");
}

/// The cost of a replacement is only known afterwards, so an oversized one is rejected up front.
#[test]
fn a_replacement_does_not_take_all_memory() {
    let long = |letter: &str| format!("lists.range(5000).map(i, '{}').join('')", letter.repeat(10));
    let text = format!("{}.replace('a', {}) == ''", long("a"), long("b"));
    assert_eq!(value(&text), Err(EvalError::TooExpensive));
}

/// Concatenating lists costs 1 regardless of length, and a value used twice is shared.
#[test]
fn values_that_double_with_each_step_take_neither_all_memory_nor_all_time() {
    let doubled = |first: &str, step: &str| format!("optional.of({first}){}", step.repeat(25));
    let joined = doubled("lists.range(1000)", ".optMap(a, a + a)");
    assert_eq!(value(&format!("{joined}.value().size() == 0")), Err(EvalError::TooExpensive));
    let nested = doubled("[1]", ".optMap(a, [a, a])");
    assert_eq!(value(&format!("{nested} == {nested}")), Err(EvalError::TooExpensive));
    assert_eq!(value(&format!("{nested}.value().flatten(50).size() == 0")), Err(EvalError::TooExpensive));
    let made = "lists.range(100000).all(x, lists.range(100000).reverse().size() > 0)";
    assert_eq!(value(made), Err(EvalError::TooExpensive));
}

/// Accumulating in place has the same cost.
#[test]
fn maps_are_gathered_entry_by_entry() {
    let squares = "lists.range(20000).transformMap(i, v, v * v)";
    assert_eq!(value(&format!("{squares}[19999] == 399960001")), Ok(Val::Bool(true)));
    let even = "lists.range(10).transformMap(i, v, v % 2 == 0, v)";
    assert_eq!(value(&format!("{even} == {{0: 0, 2: 2, 4: 4, 6: 6, 8: 8}}")), Ok(Val::Bool(true)));
    let entries = "['a', 'b'].transformMapEntry(i, v, {v: i})";
    assert_eq!(value(&format!("{entries} == {{'a': 0, 'b': 1}}")), Ok(Val::Bool(true)));
    let twice = value("['a', 'a'].transformMapEntry(i, v, {v: i}).size() == 1");
    assert_eq!(twice, Err(EvalError::Failed("insert failed: key a already exists".into())));
    let program = environment().compile("{'a': 1, 'b': 2}.transformMap(k, v, v + 1).size() == 2").unwrap();
    assert_eq!(program.evaluate(&variables(), CALL_LIMIT).1, 30 + 30 + 2 * 5 + 3);
}
