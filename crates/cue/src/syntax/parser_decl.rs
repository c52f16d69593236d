//! Parsing declarations: fields, embeddings, `let`, ellipses, comprehensions, with their comments and attributes.

use super::ast::{Clause, Comprehension, Decl, DeclKind, Expr, ExprKind, Label, Marker, Meta};
use super::parser::Parser;
use super::token::TokenKind;
use crate::error::{Error, Position};

/// Returns the field that comments apply to: `b` in `a: b: 1`.
fn innermost(decl: &mut Decl) -> &mut Decl {
    if !decl.is_chain() {
        return decl;
    }
    match &mut decl.kind {
        DeclKind::Field { value: Expr { kind: ExprKind::Struct(decls), .. }, .. } => innermost(&mut decls[0]),
        _ => unreachable!("a chain is a field with a struct"),
    }
}

impl Parser {
    /// Parses declarations up to a closing brace or the end.
    pub(super) fn decls(&mut self) -> Result<Vec<Decl>, Error> {
        let mut decls = Vec::new();
        self.skip_commas();
        while !self.is_op("}") && *self.kind() != TokenKind::End {
            let decl = self.decl()?;
            decls.push(decl);
            if !self.is_op("}") && *self.kind() != TokenKind::End {
                if !self.is_comma() {
                    return Err(self.unexpected("a line break, `,` or `}` after the declaration"));
                }
                self.finish_line(&mut decls);
            }
        }
        self.drop_comments();
        Ok(decls)
    }

    /// Consumes the separator after a declaration and attaches a comment at the end of its line.
    fn finish_line(&mut self, decls: &mut [Decl]) {
        let line = self.token().position.line;
        self.skip_commas();
        if let Some(comment) = self.take_trailing(line)
            && let Some(decl) = decls.last_mut()
        {
            innermost(decl).meta.comments.push(comment);
        }
    }

    fn decl(&mut self) -> Result<Decl, Error> {
        let position = self.position();
        let comments = self.take_doc();
        let mut meta = Meta { before: comments.len(), comments, attributes: Vec::new() };
        let kind = self.nested(|parser| parser.decl_kind(&position))?;
        if matches!(kind, DeclKind::Attribute) || !matches!(kind, DeclKind::Let { .. }) {
            self.attributes(&mut meta);
        }
        let mut decl = Decl { position, meta: Meta { attributes: meta.attributes, ..Meta::default() }, kind };
        let last = &mut innermost(&mut decl).meta;
        (last.before, last.comments) = (meta.before, meta.comments);
        Ok(decl)
    }

    fn decl_kind(&mut self, position: &Position) -> Result<DeclKind, Error> {
        if matches!(self.kind(), TokenKind::Attribute(..)) {
            return Ok(DeclKind::Attribute);
        }
        if self.take_op("...") {
            let bare = self.is_comma() || self.is_op("}") || *self.kind() == TokenKind::End;
            let value = if bare { None } else { Some(self.expr()?) };
            return Ok(DeclKind::Ellipsis(value));
        }
        if self.is_word("let") && matches!(self.kind_after(1), TokenKind::Ident(_)) {
            return self.let_decl();
        }
        if self.starts_comprehension() {
            return self.comprehension(position).map(DeclKind::Comprehension);
        }
        if self.is_op("[") && !self.is_pattern() {
            return Ok(DeclKind::Embed(self.alias_expr()?));
        }
        self.field_or_embedding()
    }

    fn let_decl(&mut self) -> Result<DeclKind, Error> {
        self.advance();
        let name = self.ident("a name after `let`")?;
        self.expect("=", "after the name of a `let`")?;
        Ok(DeclKind::Let { name, value: self.expr()? })
    }

    /// Returns whether a clause starts here, and not a field called `for` or `if`.
    pub(super) fn starts_comprehension(&self) -> bool {
        let word = self.is_word("for") || self.is_word("if");
        let is_label = matches!(self.kind_after(1), TokenKind::Op(":" | "?" | "!" | "="));
        word && (!is_label || self.is_guard_with_not())
    }

    /// Distinguishes `if !x {` from the field `if!: x`.
    fn is_guard_with_not(&self) -> bool {
        matches!(self.kind_after(1), TokenKind::Op("!")) && !matches!(self.kind_after(2), TokenKind::Op(":"))
    }

    pub(super) fn comprehension(&mut self, position: &Position) -> Result<Comprehension, Error> {
        let mut clauses = Vec::new();
        loop {
            if self.is_word("for") {
                self.advance();
                clauses.push(self.for_clause()?);
            } else if self.is_word("if") {
                self.advance();
                clauses.push(Clause::If(self.expr()?));
            } else if self.is_word("let") {
                self.advance();
                let name = self.ident("a name after `let`")?;
                self.expect("=", "after the name of a `let`")?;
                clauses.push(Clause::Let(name, self.expr()?));
            } else {
                break;
            }
            if matches!(self.kind_after(1), TokenKind::Ident(word) if ["for", "if", "let"].contains(&word.as_str()))
                || (self.is_comma() && matches!(self.kind_after(1), TokenKind::Op("{")))
            {
                self.skip_commas();
            }
        }
        if !self.is_op("{") {
            return Err(self.unexpected("`{` and the body of the comprehension"));
        }
        let body = self.struct_body()?;
        Ok(Comprehension { position: position.clone(), clauses, body })
    }

    fn for_clause(&mut self) -> Result<Clause, Error> {
        let first = self.ident("a name after `for`")?;
        let second = match self.kind() {
            TokenKind::Comma { auto: false } => {
                self.advance();
                Some(self.ident("a second name after `,`")?)
            }
            _ => None,
        };
        if !self.is_word("in") {
            return Err(self.unexpected("`in` and what to iterate over"));
        }
        self.advance();
        let source = self.expr()?;
        Ok(match second {
            Some(value) => Clause::For { key: Some(first), value, source },
            None => Clause::For { key: None, value: first, source },
        })
    }

    /// Distinguishes the pattern `[x]: y` from an embedded list.
    fn is_pattern(&self) -> bool {
        let mut depth = 0usize;
        for ahead in 0.. {
            match self.kind_after_cheap(ahead) {
                TokenKind::Op("[" | "(" | "{") => depth += 1,
                TokenKind::Op("]" | ")" | "}") => {
                    depth -= 1;
                    if depth == 0 {
                        return matches!(self.kind_after_cheap(ahead + 1), TokenKind::Op(":" | "?" | "!"));
                    }
                }
                TokenKind::End => return false,
                _ => {}
            }
        }
        false
    }

    /// Parses a field, or an embedded expression.
    fn field_or_embedding(&mut self) -> Result<DeclKind, Error> {
        let alias = self.field_alias();
        if let Some(label) = self.simple_label()? {
            let (marker, value) = self.field_rest()?;
            return Ok(DeclKind::Field { label, marker, alias, value });
        }
        if self.is_op("[") {
            let label = self.pattern_label()?;
            let (marker, value) = self.field_rest()?;
            return Ok(DeclKind::Field { label, marker, alias, value });
        }
        let expr = self.alias_expr()?;
        if !self.is_op(":") && !self.is_marker() {
            return match alias {
                Some(_) => Err(self.unexpected("`:` after the label")),
                None => Ok(DeclKind::Embed(expr)),
            };
        }
        let label = self.label_of(expr)?;
        let (marker, value) = self.field_rest()?;
        Ok(DeclKind::Field { label, marker, alias, value })
    }

    /// Takes `X=` before a label.
    fn field_alias(&mut self) -> Option<String> {
        let TokenKind::Ident(name) = self.kind() else { return None };
        let name = name.clone();
        if !matches!(self.kind_after(1), TokenKind::Op("=")) {
            return None;
        }
        self.advance();
        self.advance();
        Some(name)
    }

    /// Takes a name before `:`, `?:` or `!:`.
    fn simple_label(&mut self) -> Result<Option<Label>, Error> {
        let TokenKind::Ident(name) = self.kind() else { return Ok(None) };
        let name = name.clone();
        let marked = matches!(self.kind_after(1), TokenKind::Op("?" | "!"))
            && matches!(self.kind_after(2), TokenKind::Op(":"));
        if !marked && !matches!(self.kind_after(1), TokenKind::Op(":")) {
            return Ok(None);
        }
        if name == "_" {
            return Err(self.unexpected("a label; `_` is not a name"));
        }
        self.advance();
        Ok(Some(Label::Ident(name)))
    }

    fn pattern_label(&mut self) -> Result<Label, Error> {
        self.advance();
        self.skip_breaks();
        let pattern = self.alias_expr()?;
        self.skip_breaks();
        self.expect("]", "after the pattern")?;
        Ok(match pattern.kind {
            ExprKind::Alias(name, pattern) => Label::Pattern(Some(name), *pattern),
            _ => Label::Pattern(None, pattern),
        })
    }

    fn label_of(&self, expr: Expr) -> Result<Label, Error> {
        match expr.kind {
            ExprKind::Text { bytes: false, .. } => Ok(Label::Text(expr)),
            ExprKind::Paren(inner) => Ok(match inner.kind {
                ExprKind::Alias(name, inner) => Label::Dynamic(Some(name), *inner),
                _ => Label::Dynamic(None, *inner),
            }),
            _ => {
                Err(self
                    .unexpected("a line break; a label is a name, a string, `(expression)` or `[pattern]`"))
            }
        }
    }

    fn is_marker(&self) -> bool {
        matches!(self.kind(), TokenKind::Op("?" | "!")) && matches!(self.kind_after(1), TokenKind::Op(":"))
    }

    /// Parses what follows a label: marker, colon and value, or another label.
    fn field_rest(&mut self) -> Result<(Marker, Expr), Error> {
        let marker = match self.kind() {
            TokenKind::Op("?") => Marker::Optional,
            TokenKind::Op("!") => Marker::Required,
            _ => Marker::None,
        };
        if marker != Marker::None {
            self.advance();
        }
        self.expect(":", "after the label")?;
        Ok((marker, self.nested(Self::field_value)?))
    }

    /// Parses a value; `a: b: 1` is `a: {b: 1}`.
    fn field_value(&mut self) -> Result<Expr, Error> {
        let position = self.position();
        if !self.starts_label() {
            return self.alias_expr();
        }
        let kind = self.field_or_embedding()?;
        match kind {
            DeclKind::Embed(expr) => Ok(expr),
            kind => {
                // Attributes at the end of the line belong to the innermost field.
                let mut meta = Meta::default();
                self.attributes(&mut meta);
                let decl = Decl { position: position.clone(), meta, kind };
                self.make(&position, ExprKind::Struct(vec![decl]))
            }
        }
    }

    /// Returns whether a label might start here.
    fn starts_label(&self) -> bool {
        match self.kind() {
            TokenKind::Ident(_) => {
                matches!(self.kind_after(1), TokenKind::Op(":"))
                    || (matches!(self.kind_after(1), TokenKind::Op("?" | "!"))
                        && matches!(self.kind_after(2), TokenKind::Op(":")))
                    || (matches!(self.kind_after(1), TokenKind::Op("=")) && self.alias_is_of_label())
            }
            TokenKind::Text { bytes: false, .. } => {
                matches!(self.kind_after(1), TokenKind::Op(":"))
                    || (matches!(self.kind_after(1), TokenKind::Op("?" | "!"))
                        && matches!(self.kind_after(2), TokenKind::Op(":")))
            }
            TokenKind::Op("[") => self.is_pattern(),
            TokenKind::Op("(") => self.is_pattern(),
            _ => false,
        }
    }

    /// Distinguishes `a: X=b: c` from `a: X={…}`.
    fn alias_is_of_label(&self) -> bool {
        matches!(self.kind_after(2), TokenKind::Ident(_) | TokenKind::Text { .. })
            && matches!(self.kind_after(3), TokenKind::Op(":"))
    }
}
