//! The parser: its state, files, imports, comments and attributes.
//!
//! Recursion is bounded twice: by the nesting of brackets and by the height of the tree, so that no later pass over the
//! tree can exhaust the stack.

use std::sync::Arc;

use super::ast::{File, Import, Meta};
use super::lexer;
use super::token::{Token, TokenKind};
use crate::error::{Error, ErrorKind, Position};
use crate::limits::Limits;

/// Parses a file.
pub(crate) fn parse(name: &str, text: &str, limits: &Limits) -> Result<File, Error> {
    let name: Arc<str> = name.into();
    let tokens = lexer::tokens(&name, text, limits)?;
    Parser::new(tokens, *limits, 0).file(name)
}

/// Parses a single expression.
pub(crate) fn parse_expression(name: &str, text: &str, limits: &Limits) -> Result<super::ast::Expr, Error> {
    let name: Arc<str> = name.into();
    let tokens = lexer::tokens(&name, text, limits)?;
    let mut parser = Parser::new(tokens, *limits, 0);
    let expr = parser.expr()?;
    parser.skip_commas();
    parser.end()?;
    Ok(expr)
}

pub(super) struct Parser {
    tokens: Vec<Token>,
    at: usize,
    pub(super) limits: Limits,
    pub(super) nesting: usize,
    /// Comment lines that were skipped since the last token of code, with their line numbers.
    comments: Vec<(u32, bool, String)>,
}

impl Parser {
    pub(super) fn new(tokens: Vec<Token>, limits: Limits, nesting: usize) -> Self {
        let mut parser = Self { tokens, at: 0, limits, nesting, comments: Vec::new() };
        parser.collect_comments();
        parser
    }

    /// Moves over comments, keeping them.
    fn collect_comments(&mut self) {
        while let Some(Token { kind: TokenKind::Comment(text), position, starts_line }) =
            self.tokens.get(self.at)
        {
            self.comments.push((position.line, *starts_line, text.clone()));
            self.at += 1;
        }
    }

    pub(super) fn token(&self) -> &Token {
        // The last token is `End`, and `advance` never moves beyond it.
        &self.tokens[self.at.min(self.tokens.len() - 1)]
    }

    pub(super) fn kind(&self) -> &TokenKind {
        &self.token().kind
    }

    /// Returns the token after the next, ignoring comments.
    pub(super) fn kind_after(&self, ahead: usize) -> &TokenKind {
        let code = self.tokens[self.at..].iter().filter(|token| !matches!(token.kind, TokenKind::Comment(_)));
        code.map(|token| &token.kind).nth(ahead).unwrap_or(&TokenKind::End)
    }

    /// Returns a token ahead, comments included: for scans that only count brackets.
    pub(super) fn kind_after_cheap(&self, ahead: usize) -> &TokenKind {
        self.tokens.get(self.at + ahead).map_or(&TokenKind::End, |token| &token.kind)
    }

    pub(super) fn position(&self) -> Position {
        self.token().position.clone()
    }

    pub(super) fn advance(&mut self) -> TokenKind {
        let kind = self.kind().clone();
        if kind != TokenKind::End {
            self.at += 1;
            self.collect_comments();
        }
        kind
    }

    pub(super) fn is_op(&self, op: &str) -> bool {
        matches!(self.kind(), TokenKind::Op(found) if *found == op)
    }

    pub(super) fn is_word(&self, word: &str) -> bool {
        matches!(self.kind(), TokenKind::Ident(found) if found == word)
    }

    pub(super) fn take_op(&mut self, op: &str) -> bool {
        let found = self.is_op(op);
        if found {
            self.advance();
        }
        found
    }

    pub(super) fn expect(&mut self, op: &str, purpose: &str) -> Result<(), Error> {
        if self.take_op(op) {
            return Ok(());
        }
        Err(self.unexpected(&format!("`{op}` {purpose}")))
    }

    pub(super) fn ident(&mut self, purpose: &str) -> Result<String, Error> {
        match self.kind() {
            TokenKind::Ident(name) => {
                let name = name.clone();
                self.advance();
                Ok(name)
            }
            _ => Err(self.unexpected(purpose)),
        }
    }

    pub(super) fn is_comma(&self) -> bool {
        matches!(self.kind(), TokenKind::Comma { .. })
    }

    pub(super) fn skip_commas(&mut self) {
        while self.is_comma() {
            self.advance();
        }
    }

    /// Skips line breaks, but not written commas.
    pub(super) fn skip_breaks(&mut self) {
        while matches!(self.kind(), TokenKind::Comma { auto: true }) {
            self.advance();
        }
    }

    pub(super) fn unexpected(&self, expected: &str) -> Error {
        let message = format!("expected {expected}, found {}", self.kind().describe());
        Error::new(ErrorKind::Syntax, message).at(&self.token().position)
    }

    pub(super) fn end(&self) -> Result<(), Error> {
        if *self.kind() == TokenKind::End { Ok(()) } else { Err(self.unexpected("the end of the file")) }
    }

    /// Runs a parse one level deeper.
    pub(super) fn nested<T>(
        &mut self,
        parse: impl FnOnce(&mut Self) -> Result<T, Error>,
    ) -> Result<T, Error> {
        if self.nesting >= self.limits.nesting {
            let message = format!("the source is nested more than {} deep", self.limits.nesting);
            return Err(Error::new(ErrorKind::Limit, message).at(&self.token().position));
        }
        self.nesting += 1;
        let parsed = parse(self);
        self.nesting -= 1;
        parsed
    }

    /// Takes the comment lines that end directly above the next token.
    pub(super) fn take_doc(&mut self) -> Vec<String> {
        let mut line = self.token().position.line;
        let mut doc = Vec::new();
        for (at, starts_line, text) in self.comments.drain(..).rev() {
            if !starts_line || at + 1 != line {
                break;
            }
            line = at;
            doc.push(text);
        }
        doc.reverse();
        doc
    }

    /// Takes a comment that follows on the given line.
    pub(super) fn take_trailing(&mut self, line: u32) -> Option<String> {
        let at = self.comments.iter().position(|(found, starts_line, _)| *found == line && !starts_line)?;
        Some(self.comments.remove(at).2)
    }

    pub(super) fn drop_comments(&mut self) {
        self.comments.clear();
    }

    pub(super) fn attributes(&mut self, meta: &mut Meta) {
        while let TokenKind::Attribute(name, body) = self.kind() {
            meta.attributes.push((name.clone(), body.clone()));
            self.advance();
        }
    }

    fn file(mut self, name: Arc<str>) -> Result<File, Error> {
        let mut file = File { name, package: None, imports: Vec::new(), decls: Vec::new() };
        self.preamble_attributes();
        let names_package = matches!(self.kind_after(1), TokenKind::Ident(_));
        if self.is_word("package") && names_package {
            self.advance();
            file.package = Some(self.ident("the name of the package")?);
            self.separator()?;
        }
        while self.is_word("import")
            && matches!(self.kind_after(1), TokenKind::Ident(_) | TokenKind::Text { .. } | TokenKind::Op("("))
        {
            self.advance();
            self.imports(&mut file.imports)?;
            self.separator()?;
        }
        file.decls = self.decls()?;
        self.end()?;
        Ok(file)
    }

    fn preamble_attributes(&mut self) {
        while matches!(self.kind(), TokenKind::Attribute(..)) {
            self.advance();
            self.skip_commas();
        }
        self.skip_commas();
    }

    fn separator(&mut self) -> Result<(), Error> {
        if *self.kind() != TokenKind::End && !self.is_comma() {
            return Err(self.unexpected("a line break"));
        }
        self.skip_commas();
        Ok(())
    }

    fn imports(&mut self, imports: &mut Vec<Import>) -> Result<(), Error> {
        if !self.take_op("(") {
            imports.push(self.import()?);
            return Ok(());
        }
        self.skip_commas();
        while !self.is_op(")") {
            imports.push(self.import()?);
            if !self.is_op(")") {
                self.separator()?;
            }
        }
        self.advance();
        Ok(())
    }

    fn import(&mut self) -> Result<Import, Error> {
        let position = self.position();
        let mut given = None;
        if let TokenKind::Ident(name) = self.kind() {
            given = Some(name.clone());
            self.advance();
        }
        let path = match self.advance() {
            TokenKind::Text { parts, bytes: false } => super::parser_expr::plain_text(&parts),
            _ => None,
        };
        let path = path.ok_or_else(|| {
            Error::new(ErrorKind::Syntax, "an import needs the path of a package in quotes").at(&position)
        })?;
        let default = path.rsplit(['/', ':']).next().unwrap_or(&path).to_owned();
        let renamed = given.is_some();
        Ok(Import { position, name: given.unwrap_or(default), renamed, path })
    }
}
