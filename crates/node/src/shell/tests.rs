//! Scripts that are parsed, and scripts that are not.

use super::*;

#[test]
fn unsupported_and_wrong_syntax_is_rejected() {
    for script in [
        "sleep 5 &",
        "if true; then exit 1; fi; fi",
        "for 1x in a; do true; done",
        "function f { true; }",
        "cat 3< /etc/hosts",
        "cat <<< text",
        "echo ${x/a/b}",
        "true && ; false",
        "( )",
        "a | | b",
        "case x in a) true ;; b c) ;; esac",
        ";; true",
    ] {
        assert!(
            !matches!(parse(script), Ok(_) | Err(SyntaxError::Incomplete)),
            "{script}: {:?}",
            parse(script)
        );
    }
    let nested = [("echo $(", ")"), ("(", ")"), ("if true; then ", "; fi"), ("${x:-", "}")];
    for (open, close) in nested {
        let script = format!("{}true{}", open.repeat(2000), close.repeat(2000));
        assert!(parse(&script).is_err(), "{open}");
    }
}

#[test]
fn a_script_that_goes_on_in_the_next_line_is_incomplete() {
    for script in [
        "if true; then exit 1",
        "while true; do",
        "for i in a b",
        "true &&",
        "a |",
        "echo 'open",
        "echo \"open",
        "echo $(date",
        "echo ${x",
        "f() {",
        "case x in",
        "cat <<EOF\ntext\n",
        "(",
    ] {
        assert_eq!(parse(script), Err(SyntaxError::Incomplete), "{script}");
    }
}

#[test]
fn supported_syntax_is_parsed() {
    for script in [
        "",
        "# only a comment",
        "while read line; do echo $line; done < /etc/hosts",
        "until false; do sleep 1; done",
        "for i in 1 2 3\ndo\n  echo $i\ndone",
        "for i; do echo $i; done",
        "case $1 in start|run) echo go ;; *) echo no ;; esac",
        "f() { echo $1; }; f x",
        "! grep -q x /f || { echo found; exit 1; }",
        "(cd /tmp && ls) 2>&1 | tee /log",
        "echo `date` $((1 + 2)) ${x:-y} ${#x} ${x%%.*}",
        "cat <<EOF > /f\nhello $x\nEOF\necho done",
        "cat <<-'EOF'\n\t$x\n\tEOF\n",
        "set -euo pipefail; trap 'exit 0' TERM",
        "a=1 b=\"2 3\" env",
        "echo a\\\n b; echo 2>/dev/null >&2",
    ] {
        assert!(parse(script).is_ok(), "{script}: {:?}", parse(script));
    }
}

#[test]
fn words_are_joined_from_their_parts() {
    let list = parse("A=1 echo a\"b $X\"'c d'${Y}z > /f # no more").expect("a script");
    let [Item { when: When::Always, pipeline }] = &*list else { panic!("one command: {list:?}") };
    let [Stage { step: Step::Command(command), redirects }] = &*pipeline.stages else {
        panic!("{pipeline:?}")
    };
    assert_eq!(command.assigned[0].0, "A");
    let text = |text: &str, is_quoted| Part::Text { text: text.into(), is_quoted };
    let value =
        |name: &str, is_quoted| Part::Expanded { expansion: Expansion::Variable(name.into()), is_quoted };
    let parts = [
        text("a", false),
        text("b ", true),
        value("X", true),
        text("c d", true),
        value("Y", false),
        text("z", false),
    ];
    assert_eq!(command.words[1].parts, parts);
    assert!(matches!(&**redirects, [Redirect { stream: 1, target: Target::Write(_) }]));
}
