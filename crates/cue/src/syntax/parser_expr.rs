//! Parsing expressions.

use super::ast::{Element, Expr, ExprKind, Part, Selector};
use super::parser::Parser;
use super::token::{TextPart, TokenKind};
use crate::error::{Error, ErrorKind, Position};

/// The maximum height of an expression, which also limits `1+1+…` and `a.b.c…`. Passes over the tree recurse this deep.
const MAX_DEPTH: usize = 200;

/// Binary operators and their precedence. `&` and `|` are handled separately.
fn precedence(op: &str) -> Option<u8> {
    Some(match op {
        "||" => 3,
        "&&" => 4,
        "==" | "!=" | "<" | "<=" | ">" | ">=" | "=~" | "!~" => 5,
        "+" | "-" => 6,
        "*" | "/" => 7,
        _ => return None,
    })
}

/// Returns the text of a string without interpolations.
pub(super) fn plain_text(parts: &[TextPart]) -> Option<String> {
    match parts {
        [TextPart::Literal(bytes)] => String::from_utf8(bytes.clone()).ok(),
        _ => None,
    }
}

impl Parser {
    /// Creates an expression. Rejects trees that are too high.
    pub(super) fn make(&self, position: &Position, kind: ExprKind) -> Result<Expr, Error> {
        let depth = 1 + children_depth(&kind);
        if depth > MAX_DEPTH {
            let message = format!("the expression has more than {MAX_DEPTH} nested parts");
            return Err(Error::new(ErrorKind::Limit, message)
                .at(position)
                .hint("split it into several fields"));
        }
        Ok(Expr { position: position.clone(), depth, kind })
    }

    /// Parses an expression, optionally with a name: `X=expr`.
    pub(super) fn alias_expr(&mut self) -> Result<Expr, Error> {
        let position = self.position();
        if let TokenKind::Ident(name) = self.kind()
            && matches!(self.kind_after(1), TokenKind::Op("="))
        {
            let name = name.clone();
            self.advance();
            self.advance();
            let value = self.expr()?;
            return self.make(&position, ExprKind::Alias(name, Box::new(value)));
        }
        self.expr()
    }

    pub(super) fn expr(&mut self) -> Result<Expr, Error> {
        self.nested(Self::disjunction)
    }

    fn disjunction(&mut self) -> Result<Expr, Error> {
        self.chain("|", Self::conjunction, ExprKind::Or)
    }

    fn conjunction(&mut self) -> Result<Expr, Error> {
        self.chain("&", |parser| parser.binary(3), ExprKind::And)
    }

    /// Parses `a op b op c` into one flat node.
    fn chain(
        &mut self,
        op: &str,
        operand: impl Fn(&mut Self) -> Result<Expr, Error>,
        make: impl Fn(Vec<Expr>) -> ExprKind,
    ) -> Result<Expr, Error> {
        let position = self.position();
        let first = operand(self)?;
        if !self.is_op(op) {
            return Ok(first);
        }
        let mut operands = vec![first];
        while self.take_op(op) {
            operands.push(operand(self)?);
        }
        self.make(&position, make(operands))
    }

    fn binary(&mut self, minimum: u8) -> Result<Expr, Error> {
        let mut left = self.unary()?;
        while let TokenKind::Op(op) = self.kind() {
            let op = *op;
            let Some(binds) = precedence(op).filter(|binds| *binds >= minimum) else { break };
            let position = self.position();
            self.advance();
            let right = self.binary(binds + 1)?;
            left = self.make(&position, ExprKind::Binary(op, Box::new(left), Box::new(right)))?;
        }
        Ok(left)
    }

    fn unary(&mut self) -> Result<Expr, Error> {
        let op = match self.kind() {
            TokenKind::Op(
                op @ ("+" | "-" | "!" | "*" | "<" | "<=" | ">" | ">=" | "!=" | "=~" | "!~" | "=="),
            ) => *op,
            _ => return self.primary(),
        };
        let position = self.position();
        self.advance();
        let operand = self.nested(Self::unary)?;
        self.make(&position, ExprKind::Unary(op, Box::new(operand)))
    }

    fn primary(&mut self) -> Result<Expr, Error> {
        let mut expr = self.operand()?;
        loop {
            let position = self.position();
            if self.take_op(".") {
                let selector = self.selector()?;
                expr = self.make(&position, ExprKind::Select(Box::new(expr), selector))?;
            } else if self.take_op("[") {
                expr = self.index(&position, expr)?;
            } else if self.take_op("(") {
                let arguments = self.arguments()?;
                expr = self.make(&position, ExprKind::Call(Box::new(expr), arguments))?;
            } else {
                return Ok(expr);
            }
        }
    }

    fn selector(&mut self) -> Result<Selector, Error> {
        if let TokenKind::Text { parts, bytes: false } = self.kind()
            && let Some(text) = plain_text(parts)
        {
            self.advance();
            return Ok(Selector::Text(text));
        }
        self.ident("the name of a field after `.`").map(Selector::Ident)
    }

    fn index(&mut self, position: &Position, base: Expr) -> Result<Expr, Error> {
        self.skip_breaks();
        let base = Box::new(base);
        let low = if self.is_op(":") { None } else { Some(Box::new(self.expr()?)) };
        self.skip_breaks();
        if self.take_op("]") {
            let index = low.ok_or_else(|| self.unexpected("an index"))?;
            return self.make(position, ExprKind::Index(base, index));
        }
        self.expect(":", "or `]` after the index")?;
        let high = if self.is_op("]") { None } else { Some(Box::new(self.expr()?)) };
        self.skip_breaks();
        self.expect("]", "after the slice")?;
        self.make(position, ExprKind::Slice(base, low, high))
    }

    fn arguments(&mut self) -> Result<Vec<Expr>, Error> {
        let mut arguments = Vec::new();
        self.skip_breaks();
        while !self.is_op(")") {
            arguments.push(self.expr()?);
            if self.is_op(")") {
                break;
            }
            if !self.is_comma() {
                return Err(self.unexpected("`,` or `)` after the argument"));
            }
            self.skip_commas();
        }
        self.advance();
        Ok(arguments)
    }

    fn operand(&mut self) -> Result<Expr, Error> {
        let position = self.position();
        let kind = match self.kind() {
            TokenKind::Ident(name) => self.name_or_literal(name.clone()),
            TokenKind::Number(number) => ExprKind::Number(*number),
            TokenKind::Bottom => ExprKind::Bottom,
            TokenKind::Text { parts, bytes } => {
                let (parts, bytes) = (parts.clone(), *bytes);
                ExprKind::Text { parts: self.parts(parts)?, bytes }
            }
            TokenKind::Op("(") => return self.parenthesized(&position),
            TokenKind::Op("{") => {
                let decls = self.struct_body()?;
                return self.make(&position, ExprKind::Struct(decls));
            }
            TokenKind::Op("[") => return self.nested(|parser| parser.list(&position)),
            _ => return Err(self.unexpected("a value")),
        };
        self.advance();
        self.make(&position, kind)
    }

    fn name_or_literal(&self, name: String) -> ExprKind {
        match name.as_str() {
            "null" => ExprKind::Null,
            "true" => ExprKind::Bool(true),
            "false" => ExprKind::Bool(false),
            _ => ExprKind::Ident(name),
        }
    }

    fn parts(&self, parts: Vec<TextPart>) -> Result<Vec<Part>, Error> {
        let parsed = parts.into_iter().map(|part| match part {
            TextPart::Literal(bytes) => Ok(Part::Literal(bytes)),
            TextPart::Expression(tokens) => {
                let mut inner = Parser::new(tokens, self.limits, self.nesting);
                let expr = inner.expr()?;
                inner.skip_commas();
                inner.end().map_err(|_| inner.unexpected("`)` after the interpolated expression"))?;
                Ok(Part::Expression(expr))
            }
        });
        parsed.collect()
    }

    fn parenthesized(&mut self, position: &Position) -> Result<Expr, Error> {
        self.advance();
        self.skip_breaks();
        let inner = self.nested(Self::alias_expr)?;
        self.skip_breaks();
        self.expect(")", "to close the parenthesis")?;
        self.make(position, ExprKind::Paren(Box::new(inner)))
    }

    /// Parses `{…}`.
    pub(super) fn struct_body(&mut self) -> Result<Vec<super::ast::Decl>, Error> {
        self.advance();
        let decls = self.nested(Self::decls)?;
        self.expect("}", "to close the struct")?;
        Ok(decls)
    }

    fn list(&mut self, position: &Position) -> Result<Expr, Error> {
        self.advance();
        let mut elements = Vec::new();
        self.skip_breaks();
        while !self.is_op("]") {
            elements.push(self.element()?);
            self.skip_breaks();
            if matches!(self.kind(), TokenKind::Comma { .. }) {
                self.skip_commas();
            } else if !self.is_op("]") && !self.token().starts_line {
                return Err(self.unexpected("`,` or `]` after the element"));
            }
            if matches!(elements.last(), Some(Element::Ellipsis(_))) && !self.is_op("]") {
                return Err(self.unexpected("`]`; `...` is the last element of a list"));
            }
        }
        self.drop_comments();
        self.advance();
        self.make(position, ExprKind::List(elements))
    }

    fn element(&mut self) -> Result<Element, Error> {
        let position = self.position();
        if self.take_op("...") {
            let bare = self.is_op("]") || self.is_comma();
            let value = if bare { None } else { Some(self.expr()?) };
            return Ok(Element::Ellipsis(value));
        }
        if self.starts_comprehension() {
            return self.comprehension(&position).map(Element::Comprehension);
        }
        self.alias_expr().map(Element::Expr)
    }
}

/// Returns the height of the highest child.
fn children_depth(kind: &ExprKind) -> usize {
    use super::ast::{Clause, Comprehension, Decl, DeclKind, Label};
    fn of_decls(decls: &[Decl]) -> usize {
        decls.iter().map(of_decl).max().unwrap_or(0)
    }
    fn of_comprehension(comprehension: &Comprehension) -> usize {
        let clauses = comprehension.clauses.iter().map(|clause| match clause {
            Clause::For { source, .. } => source.depth,
            Clause::If(expr) | Clause::Let(_, expr) => expr.depth,
        });
        comprehension.clauses.len() + clauses.max().unwrap_or(0).max(1 + of_decls(&comprehension.body))
    }
    fn of_decl(decl: &Decl) -> usize {
        1 + match &decl.kind {
            DeclKind::Field { label, value, .. } => value.depth.max(match label {
                Label::Ident(_) => 0,
                Label::Text(expr) | Label::Dynamic(_, expr) | Label::Pattern(_, expr) => expr.depth,
            }),
            DeclKind::Let { value, .. } | DeclKind::Embed(value) | DeclKind::Ellipsis(Some(value)) => {
                value.depth
            }
            DeclKind::Comprehension(comprehension) => of_comprehension(comprehension),
            DeclKind::Ellipsis(None) | DeclKind::Attribute => 0,
        }
    }
    let option = |expr: &Option<Box<Expr>>| expr.as_ref().map_or(0, |expr| expr.depth);
    let highest = |exprs: &[Expr]| exprs.iter().map(|expr| expr.depth).max().unwrap_or(0);
    match kind {
        ExprKind::Unary(_, a) | ExprKind::Paren(a) | ExprKind::Alias(_, a) | ExprKind::Select(a, _) => {
            a.depth
        }
        ExprKind::Binary(_, a, b) | ExprKind::Index(a, b) => a.depth.max(b.depth),
        ExprKind::Slice(a, low, high) => a.depth.max(option(low)).max(option(high)),
        ExprKind::And(all) | ExprKind::Or(all) => highest(all),
        ExprKind::Call(function, arguments) => function.depth.max(highest(arguments)),
        ExprKind::Struct(decls) => of_decls(decls),
        ExprKind::List(elements) => elements
            .iter()
            .map(|element| match element {
                Element::Expr(expr) | Element::Ellipsis(Some(expr)) => expr.depth,
                Element::Ellipsis(None) => 0,
                Element::Comprehension(comprehension) => of_comprehension(comprehension),
            })
            .max()
            .unwrap_or(0),
        ExprKind::Text { parts, .. } => parts
            .iter()
            .map(|part| match part {
                Part::Expression(expr) => expr.depth,
                Part::Literal(_) => 0,
            })
            .max()
            .unwrap_or(0),
        _ => 0,
    }
}
