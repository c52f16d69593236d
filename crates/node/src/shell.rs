//! Parses the supported subset of the shell language. Pure.
//!
//! ```text
//!  list       step (";" | newline | "&&" | "||" step)*
//!  step       "if" list "then" list ("elif" list "then" list)* ("else" list)? "fi"  |  name=word*  word+ redirect*
//!  word       text, 'text', "text", $name, ${name}, $(list)
//! ```
//!
//! A script that uses anything else (loops, pipes, functions, arithmetic) is not parsed; nothing is known about it.

/// Steps, each with the required result of the previous one.
pub(crate) type List = Vec<(When, Step)>;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum When {
    Always,
    Succeeded,
    Failed,
}

#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Step {
    Command(Command),
    /// Conditions with their branches, and the else branch.
    If(Vec<(List, List)>, List),
}

#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Command {
    pub(crate) assigned: Vec<(String, Word)>,
    pub(crate) words: Vec<Word>,
    /// The output redirection. The last one wins.
    pub(crate) output: Option<Output>,
}

#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Output {
    pub(crate) path: Word,
    pub(crate) appends: bool,
}

#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Word {
    pub(crate) parts: Vec<Part>,
    /// A quoted word exists even if it is empty.
    pub(crate) is_quoted: bool,
}

#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Part {
    Text(String),
    Variable(String),
    /// Command substitution.
    Printed(List),
}

impl Word {
    pub(crate) fn text(text: &str) -> Self {
        Self { parts: vec![Part::Text(text.to_owned())], is_quoted: true }
    }

    /// Returns the word if it is literal and unquoted.
    fn bare(&self) -> Option<&str> {
        match &*self.parts {
            [Part::Text(text)] if !self.is_quoted => Some(text),
            _ => None,
        }
    }
}

/// The maximum nesting depth of conditions and substitutions, which bounds the parser's stack.
const MAX_DEPTH: usize = 16;

const RESERVED: [&str; 17] = [
    "if", "then", "elif", "else", "fi", "while", "until", "for", "do", "done", "case", "esac", "in",
    "function", "{", "}", "!",
];

/// Parses a script. `None` if it uses unsupported syntax.
pub(crate) fn parse(script: &str) -> Option<List> {
    parse_at(script, 0)
}

fn parse_at(script: &str, depth: usize) -> Option<List> {
    let tokens = Lexer { rest: script, depth }.tokens()?;
    let mut parser = Parser { tokens: tokens.into_iter().peekable(), depth };
    let list = parser.list()?;
    parser.tokens.peek().is_none().then_some(list)
}

#[derive(Debug, PartialEq, Eq)]
enum Token {
    Word(Word),
    /// `;` or a newline.
    End,
    And,
    Or,
    /// A redirection to a file. Redirected stderr is ignored.
    Redirect {
        appends: bool,
        is_output: bool,
    },
}

struct Lexer<'a> {
    rest: &'a str,
    depth: usize,
}

impl Lexer<'_> {
    fn tokens(mut self) -> Option<Vec<Token>> {
        let mut tokens = Vec::new();
        while let Some(first) = self.rest.chars().next() {
            match first {
                '\n' | ';' => tokens.push(self.taken(1, Token::End)),
                ' ' | '\t' | '\r' => self.skip(1),
                '#' => self.rest = self.rest.find('\n').map_or("", |end| &self.rest[end..]),
                '\\' if self.rest.starts_with("\\\n") => self.skip(2),
                _ if self.rest.starts_with("&&") => tokens.push(self.taken(2, Token::And)),
                _ if self.rest.starts_with("||") => tokens.push(self.taken(2, Token::Or)),
                _ => match self.redirect() {
                    Redirected::To(token) => tokens.push(token),
                    Redirected::Within => {}
                    Redirected::No => tokens.push(Token::Word(self.word()?)),
                },
            }
        }
        Some(tokens)
    }

    fn skip(&mut self, length: usize) {
        self.rest = &self.rest[length..];
    }

    fn taken(&mut self, length: usize, token: Token) -> Token {
        self.skip(length);
        token
    }

    fn redirect(&mut self) -> Redirected {
        for joined in ["2>&1", "1>&2", ">&2"] {
            if self.rest.starts_with(joined) {
                self.skip(joined.len());
                return Redirected::Within;
            }
        }
        for (written, appends, is_output) in [
            ("2>>", true, false),
            ("2>", false, false),
            ("1>>", true, true),
            ("1>", false, true),
            (">>", true, true),
            (">", false, true),
        ] {
            if self.rest.starts_with(written) {
                return Redirected::To(self.taken(written.len(), Token::Redirect { appends, is_output }));
            }
        }
        Redirected::No
    }

    fn word(&mut self) -> Option<Word> {
        let mut word = Word::default();
        let mut text = String::new();
        while let Some(next) = self.rest.chars().next() {
            match next {
                ' ' | '\t' | '\r' | '\n' | ';' | '>' => break,
                '&' | '|' if self.rest.starts_with("&&") || self.rest.starts_with("||") => break,
                '&' | '|' | '<' | '(' | ')' | '`' | '*' | '?' => return None,
                '\'' => {
                    let (quoted, rest) = self.rest[1..].split_once('\'')?;
                    text.push_str(quoted);
                    (self.rest, word.is_quoted) = (rest, true);
                }
                '"' => {
                    self.skip(1);
                    self.double_quoted(&mut word, &mut text)?;
                }
                '\\' => {
                    let escaped = self.rest.chars().nth(1)?;
                    text.push(escaped);
                    (word.is_quoted, self.rest) = (true, &self.rest[1 + escaped.len_utf8()..]);
                }
                '$' => self.expansion(&mut word, &mut text)?,
                _ => self.plain(next, &mut text),
            }
        }
        flush(&mut text, &mut word);
        Some(word)
    }

    fn plain(&mut self, next: char, text: &mut String) {
        text.push(next);
        self.skip(next.len_utf8());
    }

    fn double_quoted(&mut self, word: &mut Word, text: &mut String) -> Option<()> {
        word.is_quoted = true;
        loop {
            match self.rest.chars().next()? {
                '"' => {
                    self.skip(1);
                    return Some(());
                }
                '\\' if self.rest[1..].starts_with(['"', '\\', '$', '`']) => {
                    text.push_str(&self.rest[1..2]);
                    self.skip(2);
                }
                '`' => return None,
                '$' => self.expansion(word, text)?,
                next => self.plain(next, text),
            }
        }
    }

    /// Parses an expansion starting with a dollar sign.
    fn expansion(&mut self, word: &mut Word, text: &mut String) -> Option<()> {
        let after = &self.rest[1..];
        if after.starts_with("((") || self.depth == MAX_DEPTH {
            return None;
        }
        if let Some(inside) = after.strip_prefix('(') {
            let end = closing(inside)?;
            flush(text, word);
            word.parts.push(Part::Printed(parse_at(&inside[..end], self.depth + 1)?));
            self.rest = &inside[end + 1..];
            return Some(());
        }
        let (name, rest) = match after.strip_prefix('{') {
            Some(inside) => inside.split_once('}')?,
            None => after.split_at(after.find(|c: char| !is_of_name(c)).unwrap_or(after.len())),
        };
        if name.is_empty() || !name.chars().all(is_of_name) {
            return None;
        }
        flush(text, word);
        word.parts.push(Part::Variable(name.to_owned()));
        self.rest = rest;
        Some(())
    }
}

enum Redirected {
    To(Token),
    /// From one stream to the other. They are the same in the log.
    Within,
    No,
}

fn is_of_name(c: char) -> bool {
    c.is_ascii_alphanumeric() || c == '_'
}

fn flush(text: &mut String, word: &mut Word) {
    if !text.is_empty() {
        word.parts.push(Part::Text(std::mem::take(text)));
    }
}

/// Returns the position of the closing parenthesis. Quotes inside are ignored: they seldom contain parentheses.
fn closing(inside: &str) -> Option<usize> {
    let mut open = 1;
    for (at, c) in inside.char_indices() {
        open = match c {
            '(' => open + 1,
            ')' => open - 1,
            _ => open,
        };
        if open == 0 {
            return Some(at);
        }
    }
    None
}

struct Parser {
    tokens: std::iter::Peekable<std::vec::IntoIter<Token>>,
    depth: usize,
}

impl Parser {
    /// Parses steps up to a word that ends them, which is not consumed.
    fn list(&mut self) -> Option<List> {
        let mut steps = List::new();
        let mut when = When::Always;
        loop {
            while self.tokens.next_if_eq(&Token::End).is_some() {}
            if self.peek_word().is_some_and(|word| ["then", "elif", "else", "fi"].contains(&word))
                || self.tokens.peek().is_none()
            {
                return (when == When::Always).then_some(steps);
            }
            steps.push((when, self.step()?));
            when = match self.tokens.peek() {
                None => return Some(steps),
                Some(Token::And) => When::Succeeded,
                Some(Token::Or) => When::Failed,
                Some(Token::End) => When::Always,
                Some(_) => return None,
            };
            self.tokens.next();
        }
    }

    fn peek_word(&mut self) -> Option<&str> {
        match self.tokens.peek() {
            Some(Token::Word(word)) => word.bare(),
            _ => None,
        }
    }

    fn take_word(&mut self, expected: &str) -> Option<()> {
        (self.peek_word() == Some(expected)).then(|| drop(self.tokens.next()))
    }

    fn step(&mut self) -> Option<Step> {
        match self.peek_word() {
            Some("if") => self.condition(),
            Some(word) if RESERVED.contains(&word) => None,
            _ => self.command().map(Step::Command),
        }
    }

    fn condition(&mut self) -> Option<Step> {
        self.depth += 1;
        if self.depth > MAX_DEPTH {
            return None;
        }
        let (mut branches, mut otherwise, mut begins_with) = (Vec::new(), List::new(), "if");
        while self.take_word(begins_with).is_some() {
            let condition = self.list()?;
            self.take_word("then")?;
            branches.push((condition, self.list()?));
            begins_with = "elif";
        }
        if self.take_word("else").is_some() {
            otherwise = self.list()?;
        }
        self.take_word("fi")?;
        self.depth -= 1;
        Some(Step::If(branches, otherwise))
    }

    fn command(&mut self) -> Option<Command> {
        let mut command = Command::default();
        while let Some(Token::Word(_) | Token::Redirect { .. }) = self.tokens.peek() {
            match self.tokens.next()? {
                Token::Redirect { appends, is_output } => {
                    let Token::Word(path) = self.tokens.next()? else { return None };
                    if is_output {
                        command.output = Some(Output { path, appends });
                    }
                }
                Token::Word(word) => match assignment(word, command.words.is_empty()) {
                    Ok(assigned) => command.assigned.push(assigned),
                    Err(word) => command.words.push(word),
                },
                _ => return None,
            }
        }
        Some(command)
    }
}

/// Parses a word of the form `name=value` before the command.
fn assignment(mut word: Word, may_be: bool) -> Result<(String, Word), Word> {
    let Some(Part::Text(text)) = word.parts.first().filter(|_| may_be) else { return Err(word) };
    let Some((name, value)) = text.split_once('=') else { return Err(word) };
    if name.is_empty() || name.starts_with(|c: char| c.is_ascii_digit()) || !name.chars().all(is_of_name) {
        return Err(word);
    }
    let (name, value) = (name.to_owned(), value.to_owned());
    word.parts[0] = Part::Text(value);
    Ok((name, word))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unsupported_syntax_is_rejected() {
        for script in [
            "while true; do sleep 1; done",
            "for i in 1 2; do echo $i; done",
            "ls | wc -l",
            "sleep 5 &",
            "exit $(( 1 + 1 ))",
            "echo `date`",
            "f() { true; }",
            "cat < /etc/hosts",
            "if true; then exit 1",
            "true &&",
            "echo 'open",
            "echo $(date",
            "! true",
        ] {
            assert_eq!(parse(script), None, "{script}");
        }
        assert_eq!(parse(&format!("{}true{}", "echo $(".repeat(40), ")".repeat(40))), None);
    }

    #[test]
    fn words_are_joined_from_their_parts() {
        let list = parse("A=1 echo a\"b $X\"'c d'${Y}z > /f # no more").expect("a script");
        let [(When::Always, Step::Command(command))] = &*list else { panic!("one command: {list:?}") };
        assert_eq!(command.assigned[0].0, "A");
        let text = |text: &str| Part::Text(text.into());
        let parts =
            [text("ab "), Part::Variable("X".into()), text("c d"), Part::Variable("Y".into()), text("z")];
        assert_eq!(command.words[1].parts, parts);
        assert_eq!(command.output.as_ref().map(|output| output.appends), Some(false));
    }
}
