//! Parses tokens into a list.

use std::iter::Peekable;
use std::sync::Arc;
use std::vec::IntoIter;

use super::lexer::{Kind, Token, is_of_name, tokens};
use super::{
    Command, Item, List, MAX_DEPTH, Part, Pipeline, Redirect, Stage, Step, SyntaxError, Target, When, Word,
};

type Parsed<T> = Result<T, SyntaxError>;

/// Words that end a list.
const ENDS: [&str; 7] = ["then", "elif", "else", "fi", "do", "done", "}"];

/// Parses a script.
pub(crate) fn parse(script: &str) -> Parsed<List> {
    parse_nested(script, 0)
}

/// Parses a script inside another.
pub(super) fn parse_nested(script: &str, depth: usize) -> Parsed<List> {
    let tokens = tokens(script, depth)?;
    let mut parser = Parser { tokens: tokens.into_iter().peekable(), depth };
    let list = parser.list()?;
    match parser.tokens.next() {
        None => Ok(list),
        Some(token) => Err(unexpected(&token)),
    }
}

struct Parser {
    tokens: Peekable<IntoIter<Token>>,
    depth: usize,
}

impl Parser {
    /// Parses pipelines up to a token that ends the list, which is not consumed.
    fn list(&mut self) -> Parsed<List> {
        let mut items = List::new();
        let mut when = When::Always;
        loop {
            self.skip_newlines();
            if when == When::Always {
                while self.tokens.next_if_eq(&Token::End).is_some() {
                    self.skip_newlines();
                }
            }
            if self.is_at_end() {
                return match (when, self.tokens.peek()) {
                    (When::Always, _) => Ok(items),
                    (_, None) => Err(SyntaxError::Incomplete),
                    (_, Some(token)) => Err(unexpected(token)),
                };
            }
            items.push(Item { when, pipeline: self.pipeline()? });
            when = match self.tokens.peek() {
                Some(Token::And) => When::Succeeded,
                Some(Token::Or) => When::Failed,
                Some(Token::End | Token::Newline) => When::Always,
                _ => return Ok(items),
            };
            self.tokens.next();
        }
    }

    fn is_at_end(&mut self) -> bool {
        match self.tokens.peek() {
            None | Some(Token::Close | Token::EndOfArm) => true,
            Some(Token::Word(word)) => word.bare().is_some_and(|word| ENDS.contains(&word)),
            Some(_) => false,
        }
    }

    fn skip_newlines(&mut self) {
        while self.tokens.next_if_eq(&Token::Newline).is_some() {}
    }

    fn peek_word(&mut self) -> Option<&str> {
        match self.tokens.peek() {
            Some(Token::Word(word)) => word.bare(),
            _ => None,
        }
    }

    fn expect_word(&mut self, expected: &str) -> Parsed<()> {
        if self.peek_word() == Some(expected) {
            self.tokens.next();
            return Ok(());
        }
        self.fail()
    }

    fn expect(&mut self, expected: &Token) -> Parsed<()> {
        match self.tokens.next_if_eq(expected) {
            Some(_) => Ok(()),
            None => self.fail(),
        }
    }

    fn fail<T>(&mut self) -> Parsed<T> {
        Err(self.tokens.peek().map_or(SyntaxError::Incomplete, unexpected))
    }

    fn pipeline(&mut self) -> Parsed<Pipeline> {
        let mut is_negated = false;
        while self.peek_word() == Some("!") {
            self.tokens.next();
            is_negated = !is_negated;
        }
        let mut stages = vec![self.stage()?];
        while self.tokens.next_if_eq(&Token::Pipe).is_some() {
            self.skip_newlines();
            stages.push(self.stage()?);
        }
        Ok(Pipeline { is_negated, stages })
    }

    fn stage(&mut self) -> Parsed<Stage> {
        self.depth += 1;
        if self.depth > MAX_DEPTH {
            return Err(SyntaxError::Unsupported("so many levels"));
        }
        let stage = self.stage_inside();
        self.depth -= 1;
        stage
    }

    fn stage_inside(&mut self) -> Parsed<Stage> {
        let is_subshell = self.tokens.peek() == Some(&Token::Open);
        let step = match self.peek_word() {
            Some("if") => self.condition()?,
            Some(word @ ("while" | "until")) => {
                let is_until = word == "until";
                self.tokens.next();
                let condition = self.filled_list()?;
                Step::While { is_until, condition, body: self.loop_body()? }
            }
            Some("for") => self.counted_loop()?,
            Some("case") => self.case()?,
            Some("{") => {
                self.tokens.next();
                let list = self.filled_list()?;
                self.expect_word("}")?;
                Step::Group(list)
            }
            Some("function" | "select") => return Err(SyntaxError::Unsupported("this command")),
            Some(word) if ENDS.contains(&word) || matches!(word, "in" | "esac") => return self.fail(),
            _ if is_subshell => {
                self.tokens.next();
                let list = self.filled_list()?;
                self.expect(&Token::Close)?;
                Step::Subshell(list)
            }
            _ => return self.command(),
        };
        let mut redirects = Vec::new();
        while let Some(redirect) = self.redirect()? {
            redirects.push(redirect);
        }
        Ok(Stage { step, redirects })
    }

    /// Parses a list of at least one pipeline.
    fn filled_list(&mut self) -> Parsed<List> {
        let list = self.list()?;
        if list.is_empty() { self.fail() } else { Ok(list) }
    }

    fn condition(&mut self) -> Parsed<Step> {
        let (mut branches, mut otherwise, mut begins_with) = (Vec::new(), List::new(), "if");
        while self.peek_word() == Some(begins_with) {
            self.tokens.next();
            let condition = self.filled_list()?;
            self.expect_word("then")?;
            branches.push((condition, self.filled_list()?));
            begins_with = "elif";
        }
        if self.peek_word() == Some("else") {
            self.tokens.next();
            otherwise = self.filled_list()?;
        }
        self.expect_word("fi")?;
        Ok(Step::If(branches, otherwise))
    }

    fn loop_body(&mut self) -> Parsed<List> {
        self.expect_word("do")?;
        let body = self.filled_list()?;
        self.expect_word("done")?;
        Ok(body)
    }

    fn counted_loop(&mut self) -> Parsed<Step> {
        self.tokens.next();
        let variable = self.peek_word().filter(|name| is_name(name)).map(str::to_owned);
        let Some(variable) = variable else { return self.fail() };
        self.tokens.next();
        self.skip_newlines();
        let mut words = None;
        if self.peek_word() == Some("in") {
            self.tokens.next();
            let listed = words.insert(Vec::new());
            while let Some(Token::Word(word)) = self.tokens.next_if(|token| matches!(token, Token::Word(_))) {
                listed.push(word);
            }
        }
        self.tokens.next_if_eq(&Token::End);
        self.skip_newlines();
        Ok(Step::For { variable, words, body: self.loop_body()? })
    }

    fn case(&mut self) -> Parsed<Step> {
        self.tokens.next();
        let subject = self.any_word()?;
        self.skip_newlines();
        self.expect_word("in")?;
        self.skip_newlines();
        let mut arms = Vec::new();
        while self.peek_word() != Some("esac") {
            self.tokens.next_if_eq(&Token::Open);
            let mut patterns = vec![self.any_word()?];
            while self.tokens.next_if_eq(&Token::Pipe).is_some() {
                patterns.push(self.any_word()?);
            }
            self.expect(&Token::Close)?;
            arms.push((patterns, self.arm()?));
            self.skip_newlines();
        }
        self.tokens.next();
        Ok(Step::Case { subject, arms })
    }

    /// Parses the list of an arm and the token that ends it.
    fn arm(&mut self) -> Parsed<List> {
        self.skip_newlines();
        let list = if self.peek_word() == Some("esac") { List::new() } else { self.list()? };
        if self.tokens.next_if_eq(&Token::EndOfArm).is_none() && self.peek_word() != Some("esac") {
            return self.fail();
        }
        Ok(list)
    }

    fn any_word(&mut self) -> Parsed<Word> {
        match self.tokens.next_if(|token| matches!(token, Token::Word(_))) {
            Some(Token::Word(word)) => Ok(word),
            _ => self.fail(),
        }
    }

    fn command(&mut self) -> Parsed<Stage> {
        let (mut command, mut redirects) = (Command::default(), Vec::new());
        loop {
            if let Some(redirect) = self.redirect()? {
                redirects.push(redirect);
            } else if self.tokens.peek() == Some(&Token::Open) {
                return self.function(&command);
            } else if let Some(Token::Word(word)) =
                self.tokens.next_if(|token| matches!(token, Token::Word(_)))
            {
                match assignment(word, command.words.is_empty()) {
                    Ok(assigned) => command.assigned.push(assigned),
                    Err(word) => command.words.push(word),
                }
            } else if command.words.is_empty() && command.assigned.is_empty() && redirects.is_empty() {
                return self.fail();
            } else {
                return Ok(Stage { step: Step::Command(command), redirects });
            }
        }
    }

    /// Parses the rest of a function, after its name.
    fn function(&mut self, before: &Command) -> Parsed<Stage> {
        let name = match &*before.words {
            [name] if before.assigned.is_empty() => name.bare().filter(|name| is_name(name)),
            _ => None,
        };
        let Some(name) = name.map(str::to_owned) else { return self.fail() };
        self.expect(&Token::Open)?;
        self.expect(&Token::Close)?;
        self.skip_newlines();
        let body = self.stage()?;
        Ok(Stage { step: Step::Function(name, Arc::new(body)), redirects: Vec::new() })
    }

    fn redirect(&mut self) -> Parsed<Option<Redirect>> {
        let is_redirect = |token: &Token| {
            matches!(token, Token::Redirect { .. } | Token::Same { .. } | Token::HereDocument(_))
        };
        let Some(token) = self.tokens.next_if(is_redirect) else { return Ok(None) };
        Ok(Some(match token {
            Token::Same { stream, other } => Redirect { stream, target: Target::Same(other) },
            Token::HereDocument(text) => Redirect { stream: 0, target: Target::Text(text) },
            Token::Redirect { stream, kind } => {
                let path = self.any_word()?;
                let target = match kind {
                    Kind::Read => Target::Read(path),
                    Kind::Write => Target::Write(path),
                    Kind::Append => Target::Append(path),
                };
                Redirect { stream, target }
            }
            other => return Err(unexpected(&other)),
        }))
    }
}

fn is_name(text: &str) -> bool {
    !text.is_empty() && !text.starts_with(|c: char| c.is_ascii_digit()) && text.chars().all(is_of_name)
}

/// Splits a word of the form `name=value` before the command.
fn assignment(mut word: Word, may_be: bool) -> Result<(String, Word), Word> {
    let Some(Part::Text { text, is_quoted: false }) = word.parts.first().filter(|_| may_be) else {
        return Err(word);
    };
    let Some((name, value)) = text.split_once('=').filter(|(name, _)| is_name(name)) else {
        return Err(word);
    };
    let (name, value) = (name.to_owned(), value.to_owned());
    word.parts[0] = Part::Text { text: value, is_quoted: false };
    Ok((name, word))
}

fn unexpected(token: &Token) -> SyntaxError {
    let written = match token {
        Token::Word(word) => match word.parts.first() {
            Some(Part::Text { text, .. }) => text,
            _ => "word",
        },
        Token::Newline => "newline",
        Token::End => ";",
        Token::EndOfArm => ";;",
        Token::And => "&&",
        Token::Or => "||",
        Token::Pipe => "|",
        Token::Open => "(",
        Token::Close => ")",
        Token::Redirect { .. } | Token::Same { .. } | Token::HereDocument(_) => "redirection",
    };
    SyntaxError::Unexpected(written.to_owned())
}
