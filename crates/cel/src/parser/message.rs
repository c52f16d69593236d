//! Messages: values of named types, such as `Object.spec{replicas: 1}`.

use super::{KEYWORDS, Parser, unsupported_quote};
use crate::ast::{Expr, Initializer, Kind};
use crate::lexer::{Mistake, Token};

impl Parser {
    /// Returns whether a name is that of a type, because `{` or `.spec{` follows.
    pub(super) fn is_type_name(&self) -> bool {
        let token = |ahead: usize| self.words.get(self.at + ahead).map(|word| &word.token);
        let mut ahead = 0;
        while token(ahead) == Some(&Token::Symbol("."))
            && matches!(token(ahead + 1), Some(Token::Ident(name)) if !KEYWORDS.contains(&name.as_str()))
        {
            ahead += 2;
        }
        token(ahead) == Some(&Token::Symbol("{"))
    }

    /// Parses a message after the first part of its type's name. Its position is that of the brace, as in v1.34.
    pub(super) fn message(&mut self, mut name: String) -> Result<Expr, Mistake> {
        while self.eat(".") {
            name.push('.');
            name.push_str(&self.name()?);
        }
        let at = self.place();
        self.expect("{")?;
        let mut fields = Vec::new();
        if !self.is_initializer() && !matches!(self.peek(), Token::Symbol("}" | ",")) {
            return Err(self.unexpected("{'}', ',', '?', IDENTIFIER, ESC_IDENTIFIER}", |_| false));
        }
        self.open.push("}");
        while self.is_initializer() {
            fields.push(self.initializer()?);
            if !self.eat(",") {
                self.open.pop();
                self.expect_end("}")?;
                return Ok(self.expr(at, Kind::Message { name, fields }));
            }
        }
        if fields.is_empty() {
            self.eat(",");
        }
        self.open.pop();
        self.expect("}")?;
        Ok(self.expr(at, Kind::Message { name, fields }))
    }

    /// Whether the next token starts the value of a field.
    fn is_initializer(&self) -> bool {
        match self.peek() {
            Token::Ident(name) => !KEYWORDS.contains(&name.as_str()),
            Token::Quoted | Token::Symbol("?") => true,
            _ => false,
        }
    }

    fn initializer(&mut self) -> Result<Initializer, Mistake> {
        let is_optional = self.eat("?");
        let name = match self.peek() {
            Token::Ident(name) if !KEYWORDS.contains(&name.as_str()) => name.clone(),
            Token::Quoted => return Err(unsupported_quote(self.place())),
            _ => return Err(self.unexpected("{IDENTIFIER, ESC_IDENTIFIER}", |_| false)),
        };
        self.at += 1;
        let at = self.place();
        self.expect(":")?;
        Ok(Initializer { at, name, value: self.ternary()?, is_optional })
    }
}
