//! Parser: builds expressions from tokens and expands macros as v1.34 does, because costs are based on the expansion.

mod message;

use super::ast::{Expr, Fold, Kind, Literal};
use super::escape::RESERVED;
use super::lexer::{self, Mistake, Token, Word, Words};

/// The maximum nesting depth of expressions, as in v1.34, so that everything that walks them needs little stack.
const DEEPEST: usize = 250;
/// The maximum nesting depth of brackets. The parser passes through ten functions for each, some 20 KB of stack in
/// debug builds, so this is 1 MB of a thread's 2 MB.
const NESTED: usize = 50;
/// The maximum length of an expression in characters, as in v1.34.
const LONGEST: usize = 100_000;
/// The variable in which comprehensions accumulate their results.
pub(super) const ACCU: &str = "@result";
/// The variable for the target of a macro that uses it twice.
const TARGET: &str = "@target";
const EXPECTED: &str = "{'[', '{', '(', '.', '-', '!', 'true', 'false', 'null', NUM_FLOAT, NUM_INT, NUM_UINT, STRING, BYTES, IDENTIFIER}";
const EXPECTED_OR_OPTIONAL: &str = "{'[', '{', '(', '.', '-', '!', '?', 'true', 'false', 'null', NUM_FLOAT, NUM_INT, NUM_UINT, STRING, BYTES, IDENTIFIER}";
const EXPECTED_IN_LIST: &str = "{'[', ']', '{', '(', '.', ',', '-', '!', '?', 'true', 'false', 'null', NUM_FLOAT, NUM_INT, NUM_UINT, STRING, BYTES, IDENTIFIER}";
const EXPECTED_IN_MAP: &str = "{'[', '{', '}', '(', '.', ',', '-', '!', '?', 'true', 'false', 'null', NUM_FLOAT, NUM_INT, NUM_UINT, STRING, BYTES, IDENTIFIER}";
const EXPECTED_OR_CLOSED: &str = "{'[', '{', '(', ')', '.', '-', '!', 'true', 'false', 'null', NUM_FLOAT, NUM_INT, NUM_UINT, STRING, BYTES, IDENTIFIER}";

pub(super) fn parse(text: &str) -> Result<Expr, Vec<Mistake>> {
    let Words { words, unrecognized } = words(text).map_err(|mistake| vec![mistake])?;
    let mut parser = Parser {
        letters: text.chars().collect(),
        words,
        at: 0,
        next_id: 0,
        depth: 0,
        deepest: 0,
        noted: Vec::new(),
        args_at: None,
        open: Vec::new(),
    };
    let parsed = parser.whole();
    let mut mistakes = unrecognized;
    match parsed {
        Ok(expr) if mistakes.is_empty() => return Ok(expr),
        Ok(_) => {}
        Err(mistake) => {
            mistakes.append(&mut parser.noted);
            mistakes.push(mistake);
        }
    }
    mistakes.sort_by_key(|mistake| mistake.at);
    Err(mistakes)
}

fn words(text: &str) -> Result<Words, Mistake> {
    let length = text.chars().count();
    if length > LONGEST {
        let message = format!("expression code point size exceeds limit: size: {length}, limit {LONGEST}");
        return Err(Mistake { at: 0, message });
    }
    lexer::words(text)
}

struct Parser {
    letters: Vec<char>,
    words: Vec<Word>,
    at: usize,
    next_id: usize,
    depth: usize,
    /// The depth of the deepest expression so far.
    deepest: usize,
    /// Errors before the one that ended the parse.
    noted: Vec<Mistake>,
    /// Where the arguments of the last call start.
    args_at: Option<usize>,
    /// The closing brackets of the open ones.
    open: Vec<&'static str>,
}

impl Parser {
    fn whole(&mut self) -> Result<Expr, Mistake> {
        let expr = self.ternary()?;
        match self.peek() {
            Token::End => Ok(expr),
            _ => Err(self.unexpected("<EOF>", |next| *next == Token::End)),
        }
    }

    /// The error for an unexpected token. In v1.34's words it is extraneous if the next token is expected, and
    /// mismatched otherwise.
    fn unexpected(&self, expecting: &str, is_expected: impl Fn(&Token) -> bool) -> Mistake {
        let is_extraneous = *self.peek() != Token::End && is_expected(self.peek_after());
        let what = if is_extraneous { "extraneous" } else { "mismatched" };
        let found = self.source();
        Mistake {
            at: self.place(),
            message: format!("Syntax error: {what} input '{found}' expecting {expecting}"),
        }
    }

    /// The text of the next token.
    fn source(&self) -> String {
        let word = &self.words[self.at.min(self.words.len() - 1)];
        match word.token {
            Token::End => "<EOF>".into(),
            _ => self.letters[word.at..word.end].iter().collect(),
        }
    }

    fn peek_after(&self) -> &Token {
        &self.words[(self.at + 1).min(self.words.len() - 1)].token
    }

    fn peek(&self) -> &Token {
        &self.words[self.at.min(self.words.len() - 1)].token
    }

    fn place(&self) -> usize {
        self.words[self.at.min(self.words.len() - 1)].at
    }

    fn next(&mut self) -> Token {
        let token = self.peek().clone();
        self.at += 1;
        token
    }

    fn eat(&mut self, symbol: &str) -> bool {
        let is_next = matches!(self.peek(), Token::Symbol(next) if *next == symbol);
        self.at += usize::from(is_next);
        is_next
    }

    fn expect(&mut self, symbol: &str) -> Result<(), Mistake> {
        if self.eat(symbol) {
            return Ok(());
        }
        let is_it = |token: &Token| matches!(token, Token::Symbol(other) if *other == symbol);
        if is_it(self.peek_after()) || !self.may_follow(symbol) {
            return Err(self.unexpected(&format!("'{symbol}'"), is_it));
        }
        let message = format!("Syntax error: missing '{symbol}' at '{}'", self.source());
        Err(Mistake { at: self.place(), message })
    }

    /// Whether the next token would be valid if the symbol were present.
    fn may_follow(&self, symbol: &str) -> bool {
        match (symbol, self.peek(), self.open.last()) {
            (":", next, _) => starts_expression(next),
            (_, Token::End, open) => open.is_none(),
            (_, Token::Symbol(next), Some(open)) => next == open || *next == ",",
            _ => false,
        }
    }

    /// Expects the end of a list, map or message, where another element may follow as well.
    fn expect_end(&mut self, symbol: &str) -> Result<(), Mistake> {
        if self.eat(symbol) {
            return Ok(());
        }
        let expecting = format!("{{'{symbol}', ','}}");
        Err(self.unexpected(
            &expecting,
            |token| matches!(token, Token::Symbol(other) if *other == symbol || *other == ","),
        ))
    }

    /// Whether the next token starts an element, as opposed to the end after a comma.
    fn is_element(&self) -> bool {
        starts_expression(self.peek()) || *self.peek() == Token::Symbol("?")
    }

    /// Parses the elements of a list or a map. A trailing comma is allowed, and so is a lone comma.
    fn elements<T>(
        &mut self,
        end: &'static str,
        expecting: &str,
        element: impl Fn(&mut Self, bool) -> Result<T, Mistake>,
    ) -> Result<Vec<T>, Mistake> {
        let mut elements = Vec::new();
        if !self.is_element() && !matches!(self.peek(), Token::Symbol(next) if *next == end || *next == ",") {
            return Err(self.unexpected(expecting, starts_expression));
        }
        self.open.push(end);
        while self.is_element() {
            let is_optional = self.eat("?");
            elements.push(element(self, is_optional)?);
            if !self.eat(",") {
                self.open.pop();
                return self.expect_end(end).map(|()| elements);
            }
        }
        if elements.is_empty() {
            self.eat(",");
        }
        self.open.pop();
        self.expect(end)?;
        Ok(elements)
    }

    fn expr(&mut self, at: usize, kind: Kind) -> Expr {
        self.next_id += 1;
        let depth = kind.depth() + 1;
        self.deepest = self.deepest.max(depth);
        Expr { id: self.next_id, at, depth, kind }
    }

    /// Rejects chains of operators and fields that are too deep: they nest too.
    fn check_depth(&self) -> Result<(), Mistake> {
        if self.deepest <= DEEPEST && self.depth <= NESTED {
            return Ok(());
        }
        let message = format!("expression recursion limit exceeded: {DEEPEST}");
        Err(Mistake { at: self.place(), message })
    }

    fn call(&mut self, at: usize, function: &str, args: Vec<Expr>) -> Expr {
        self.expr(at, Kind::Call { target: None, function: function.into(), args })
    }

    fn ident(&mut self, at: usize, name: &str) -> Expr {
        self.expr(at, Kind::Ident(name.into()))
    }

    fn literal(&mut self, at: usize, literal: Literal) -> Expr {
        self.expr(at, Kind::Literal(literal))
    }

    fn ternary(&mut self) -> Result<Expr, Mistake> {
        self.depth += 1;
        self.check_depth()?;
        let condition = self.or()?;
        let at = self.place();
        let expr = if self.eat("?") {
            let then = self.or()?;
            self.expect(":")?;
            let otherwise = self.ternary()?;
            self.call(at, "_?_:_", vec![condition, then, otherwise])
        } else {
            condition
        };
        self.depth -= 1;
        Ok(expr)
    }

    fn or(&mut self) -> Result<Expr, Mistake> {
        let first = self.and()?;
        self.balanced("||", "_||_", first, Self::and)
    }

    fn and(&mut self) -> Result<Expr, Mistake> {
        let first = self.relation()?;
        self.balanced("&&", "_&&_", first, Self::relation)
    }

    /// Builds a balanced tree from the operands of one operator.
    fn balanced(
        &mut self,
        symbol: &str,
        function: &str,
        first: Expr,
        term: fn(&mut Self) -> Result<Expr, Mistake>,
    ) -> Result<Expr, Mistake> {
        let (mut terms, mut places) = (vec![first], Vec::new());
        loop {
            let at = self.place();
            if !self.eat(symbol) {
                break;
            }
            terms.push(term(self)?);
            places.push(at);
        }
        Ok(self.balance(function, terms, &places))
    }

    fn balance(&mut self, function: &str, mut terms: Vec<Expr>, places: &[usize]) -> Expr {
        if terms.len() == 1 {
            return terms.remove(0);
        }
        let middle = (terms.len() - 1).div_ceil(2);
        let right = terms.split_off(middle);
        let at = places[middle - 1];
        let left = self.balance(function, terms, &places[..middle - 1]);
        let right = self.balance(function, right, &places[middle..]);
        self.call(at, function, vec![left, right])
    }

    fn relation(&mut self) -> Result<Expr, Mistake> {
        let mut left = self.sum()?;
        loop {
            self.check_depth()?;
            let at = self.place();
            let function = match self.peek() {
                Token::Symbol("<") => "_<_",
                Token::Symbol("<=") => "_<=_",
                Token::Symbol(">") => "_>_",
                Token::Symbol(">=") => "_>=_",
                Token::Symbol("==") => "_==_",
                Token::Symbol("!=") => "_!=_",
                Token::Ident(name) if name == "in" => "@in",
                _ => return Ok(left),
            };
            self.at += 1;
            let right = self.sum()?;
            left = self.call(at, function, vec![left, right]);
        }
    }

    fn sum(&mut self) -> Result<Expr, Mistake> {
        let mut left = self.product()?;
        loop {
            self.check_depth()?;
            let at = self.place();
            let function = match self.peek() {
                Token::Symbol("+") => "_+_",
                Token::Symbol("-") => "_-_",
                _ => return Ok(left),
            };
            self.at += 1;
            let right = self.product()?;
            left = self.call(at, function, vec![left, right]);
        }
    }

    fn product(&mut self) -> Result<Expr, Mistake> {
        let mut left = self.unary()?;
        loop {
            self.check_depth()?;
            let at = self.place();
            let function = match self.peek() {
                Token::Symbol("*") => "_*_",
                Token::Symbol("/") => "_/_",
                Token::Symbol("%") => "_%_",
                _ => return Ok(left),
            };
            self.at += 1;
            let right = self.unary()?;
            left = self.call(at, function, vec![left, right]);
        }
    }

    fn unary(&mut self) -> Result<Expr, Mistake> {
        let at = self.place();
        for (symbol, function) in [("!", "!_"), ("-", "-_")] {
            let mut count = 0;
            while self.eat(symbol) {
                count += 1;
            }
            if count == 0 {
                continue;
            }
            if symbol == "-"
                && let Some(literal) = self.negative(count, at)
            {
                return self.members(literal);
            }
            let operand = self.member()?;
            return Ok(match count % 2 {
                0 => operand,
                _ => self.call(at, function, vec![operand]),
            });
        }
        self.member()
    }

    /// Parses a negative number as a literal.
    fn negative(&mut self, count: usize, at: usize) -> Option<Expr> {
        let is_negative = count % 2 == 1;
        let literal = match self.peek() {
            Token::Int(number) if is_negative => Literal::Int(number.checked_neg().unwrap_or(*number)),
            Token::Double(number) if is_negative => Literal::Double(-number),
            _ => return None,
        };
        self.at += 1;
        Some(self.literal(at, literal))
    }

    fn member(&mut self) -> Result<Expr, Mistake> {
        let primary = self.primary()?;
        self.members(primary)
    }

    fn members(&mut self, mut operand: Expr) -> Result<Expr, Mistake> {
        loop {
            self.check_depth()?;
            let at = self.place();
            if self.eat(".") {
                let is_optional = self.eat("?");
                let name_at = self.place();
                let name = self.name()?;
                let open_at = self.place();
                if is_optional {
                    let field = self.literal(name_at, Literal::String(name));
                    operand = self.call(at, "_?._", vec![operand, field]);
                } else if self.eat("(") {
                    let args = self.args()?;
                    operand = self.method(open_at, operand, name, args)?;
                } else {
                    let kind = Kind::Select { operand: Box::new(operand), field: name, is_test: false };
                    operand = self.expr(at, kind);
                }
            } else if self.eat("[") {
                if !self.is_element() {
                    return Err(self.unexpected(EXPECTED_OR_OPTIONAL, starts_expression));
                }
                let function = if self.eat("?") { "_[?_]" } else { "_[_]" };
                self.open.push("]");
                let index = self.ternary()?;
                self.open.pop();
                self.expect("]")?;
                operand = self.call(at, function, vec![operand, index]);
            } else {
                return Ok(operand);
            }
        }
    }

    fn name(&mut self) -> Result<String, Mistake> {
        let (at, found) = (self.place(), self.source());
        match self.next() {
            Token::Ident(name) if !KEYWORDS.contains(&name.as_str()) => Ok(name),
            Token::Quoted => Err(unsupported_quote(at)),
            other => {
                let found = if other == Token::End { "" } else { &found };
                let message = format!("{NO_FIELD}{found}'");
                Err(Mistake { at, message })
            }
        }
    }

    /// Parses the arguments of a call, after its opening parenthesis.
    fn args(&mut self) -> Result<Vec<Expr>, Mistake> {
        let mut args = Vec::new();
        if self.eat(")") {
            return Ok(args);
        }
        self.args_at = Some(self.at);
        self.open.push(")");
        loop {
            args.push(self.ternary()?);
            if !self.eat(",") {
                self.open.pop();
                self.expect(")")?;
                return Ok(args);
            }
        }
    }

    fn primary(&mut self) -> Result<Expr, Mistake> {
        let at = self.place();
        if !starts_expression(self.peek()) {
            // Instead of the first argument, the closing parenthesis may follow.
            let is_first = self.args_at == Some(self.at);
            let expecting = if is_first { EXPECTED_OR_CLOSED } else { EXPECTED };
            return Err(self.unexpected(expecting, starts_expression));
        }
        let literal = match self.next() {
            Token::Int(number) if number == i64::MIN => {
                return Err(Mistake { at, message: "invalid int literal".into() });
            }
            Token::Int(number) => Literal::Int(number),
            Token::Uint(number) => Literal::Uint(number),
            Token::Double(number) => Literal::Double(number),
            Token::String(text) => Literal::String(text),
            Token::Bytes(bytes) => Literal::Bytes(bytes),
            Token::Ident(name) => match name.as_str() {
                "true" => Literal::Bool(true),
                "false" => Literal::Bool(false),
                "null" => Literal::Null,
                _ if RESERVED.contains(&name.as_str()) => {
                    return Err(Mistake { at, message: format!("reserved identifier: {name}") });
                }
                _ => return self.named(at, name),
            },
            Token::Symbol(".") => {
                let name = self.name()?;
                return self.named(at, name);
            }
            Token::Symbol("(") => {
                self.open.push(")");
                let inside = self.ternary()?;
                self.open.pop();
                self.expect(")")?;
                return Ok(inside);
            }
            Token::Symbol("[") => {
                let elements = self.elements("]", EXPECTED_IN_LIST, |parser, is_optional| {
                    Ok((parser.ternary()?, is_optional))
                })?;
                return Ok(self.expr(at, Kind::List(elements)));
            }
            // Nothing else starts an expression.
            _ => {
                let entries = self.elements("}", EXPECTED_IN_MAP, |parser, is_optional| {
                    let key = parser.ternary()?;
                    parser.expect(":")?;
                    Ok((key, parser.ternary()?, is_optional))
                })?;
                return Ok(self.expr(at, Kind::Map(entries)));
            }
        };
        Ok(self.literal(at, literal))
    }

    fn named(&mut self, at: usize, name: String) -> Result<Expr, Mistake> {
        if self.is_type_name() {
            return self.message(name);
        }
        let open_at = self.place();
        if !self.eat("(") {
            return Ok(self.ident(at, &name));
        }
        let first_at = self.place();
        let args = self.args();
        let no_field = |at: usize| Mistake { at, message: "invalid argument to has() macro".into() };
        if let Err(why) = &args
            && name == "has"
            && why.message.starts_with(NO_FIELD)
        {
            let also = no_field(first_at);
            self.noted.push(also);
        }
        let mut args = args?;
        if name == "has" && args.len() == 1 {
            let arg = args.remove(0);
            return match arg.kind {
                Kind::Select { operand, field, .. } => {
                    Ok(self.expr(arg.at, Kind::Select { operand, field, is_test: true }))
                }
                _ => Err(no_field(arg.at)),
            };
        }
        Ok(self.call(open_at, &name, args))
    }

    /// Builds a method call, or expands the macro of that name.
    fn method(&mut self, at: usize, target: Expr, name: String, args: Vec<Expr>) -> Result<Expr, Mistake> {
        let count = args.len();
        let is_macro = matches!(
            (name.as_str(), count),
            (
                "all" | "exists" | "exists_one" | "existsOne" | "filter" | "optMap" | "optFlatMap" | "sortBy",
                2
            ) | ("map", 2 | 3)
                | (
                    "all" | "exists" | "existsOne" | "transformList" | "transformMap" | "transformMapEntry",
                    3
                )
                | ("transformList" | "transformMap" | "transformMapEntry", 4)
        );
        if !is_macro {
            return Ok(self.expr(at, Kind::Call { target: Some(Box::new(target)), function: name, args }));
        }
        let has_two = name.starts_with("transform")
            || count == 3 && matches!(name.as_str(), "all" | "exists" | "existsOne");
        let mut args = args.into_iter();
        let mut vars = Vec::new();
        for _ in 0..if has_two { 2 } else { 1 } {
            let var = args.next().ok_or(Mistake { at, message: "argument must be a simple name".into() })?;
            match var.kind {
                Kind::Ident(name) => vars.push(name),
                _ => return Err(Mistake { at: var.at, message: "argument must be a simple name".into() }),
            }
        }
        let rest: Vec<Expr> = args.collect();
        Ok(self.expand(at, target, &name, vars, rest))
    }

    fn expand(
        &mut self,
        at: usize,
        target: Expr,
        name: &str,
        vars: Vec<String>,
        mut rest: Vec<Expr>,
    ) -> Expr {
        let body = rest.pop().unwrap_or_else(|| target.clone());
        let filter = rest.pop();
        match name {
            "all" => {
                let (init, accu) = (self.literal(at, Literal::Bool(true)), self.ident(at, ACCU));
                let condition = self.call(at, "@not_strictly_false", vec![accu]);
                let accu = self.ident(at, ACCU);
                let step = self.call(at, "_&&_", vec![accu, body]);
                self.fold(at, target, vars, init, condition, step)
            }
            "exists" => {
                let (init, accu) = (self.literal(at, Literal::Bool(false)), self.ident(at, ACCU));
                let not = self.call(at, "!_", vec![accu]);
                let condition = self.call(at, "@not_strictly_false", vec![not]);
                let accu = self.ident(at, ACCU);
                let step = self.call(at, "_||_", vec![accu, body]);
                self.fold(at, target, vars, init, condition, step)
            }
            "exists_one" | "existsOne" => {
                let (init, accu, one) = (
                    self.literal(at, Literal::Int(0)),
                    self.ident(at, ACCU),
                    self.literal(at, Literal::Int(1)),
                );
                let more = self.call(at, "_+_", vec![accu, one]);
                let accu = self.ident(at, ACCU);
                let step = self.call(at, "_?_:_", vec![body, more, accu]);
                let mut fold = self.gather(at, target, vars, init, step);
                let (accu, one) = (self.ident(at, ACCU), self.literal(at, Literal::Int(1)));
                let result = self.call(at, "_==_", vec![accu, one]);
                if let Kind::Fold(fold) = &mut fold.kind {
                    fold.result = result;
                }
                fold
            }
            "filter" => {
                let item = self.ident(at, &vars[0]);
                self.gather_list(at, target, vars, item, Some(body))
            }
            "optMap" | "optFlatMap" => self.optional_map(at, target, vars, body, name == "optMap"),
            "transformMap" | "transformMapEntry" => {
                let init = self.expr(at, Kind::Map(Vec::new()));
                let accu = self.ident(at, ACCU);
                let more = match name {
                    "transformMap" => {
                        let key = self.ident(at, &vars[0]);
                        self.call(at, "cel.@mapInsert", vec![accu, key, body])
                    }
                    _ => self.call(at, "cel.@mapInsert", vec![accu, body]),
                };
                let step = self.filtered(at, more, filter);
                self.gather(at, target, vars, init, step)
            }
            "sortBy" => {
                let range = self.ident(at, TARGET);
                let keys = self.gather_list(at, range, vars, body, None);
                let list = self.ident(at, TARGET);
                let call = Kind::Call {
                    target: Some(Box::new(list)),
                    function: "@sortByAssociatedKeys".into(),
                    args: vec![keys],
                };
                let sorted = self.expr(at, call);
                self.bind(at, TARGET, target, sorted)
            }
            _ => self.gather_list(at, target, vars, body, filter),
        }
    }

    fn gather_list(
        &mut self,
        at: usize,
        target: Expr,
        vars: Vec<String>,
        item: Expr,
        filter: Option<Expr>,
    ) -> Expr {
        let (init, accu) = (self.expr(at, Kind::List(Vec::new())), self.ident(at, ACCU));
        let one = self.expr(at, Kind::List(vec![(item, false)]));
        let more = self.call(at, "_+_", vec![accu, one]);
        let step = self.filtered(at, more, filter);
        self.gather(at, target, vars, init, step)
    }

    fn filtered(&mut self, at: usize, more: Expr, filter: Option<Expr>) -> Expr {
        match filter {
            None => more,
            Some(filter) => {
                let accu = self.ident(at, ACCU);
                self.call(at, "_?_:_", vec![filter, more, accu])
            }
        }
    }

    /// Builds a comprehension over all elements.
    fn gather(&mut self, at: usize, range: Expr, vars: Vec<String>, init: Expr, step: Expr) -> Expr {
        let condition = self.literal(at, Literal::Bool(true));
        self.fold(at, range, vars, init, condition, step)
    }

    fn fold(
        &mut self,
        at: usize,
        range: Expr,
        vars: Vec<String>,
        init: Expr,
        condition: Expr,
        step: Expr,
    ) -> Expr {
        let result = self.ident(at, ACCU);
        let mut vars = vars.into_iter();
        let fold = Fold {
            var: vars.next().unwrap_or_default(),
            var2: vars.next(),
            range,
            accu: ACCU.into(),
            init,
            condition,
            step,
            result,
        };
        self.expr(at, Kind::Fold(Box::new(fold)))
    }

    /// Binds the value in an optional to a name.
    fn optional_map(&mut self, at: usize, target: Expr, vars: Vec<String>, body: Expr, wraps: bool) -> Expr {
        let method = |parser: &mut Self, target: Expr, name: &str| {
            let call = Kind::Call { target: Some(Box::new(target)), function: name.into(), args: Vec::new() };
            parser.expr(at, call)
        };
        let optional = self.ident(at, TARGET);
        let has_value = method(self, optional, "hasValue");
        let optional = self.ident(at, TARGET);
        let value = method(self, optional, "value");
        let bound = self.bind(at, &vars[0], value, body);
        let some = if wraps { self.call(at, "optional.of", vec![bound]) } else { bound };
        let none = self.call(at, "optional.none", Vec::new());
        let chosen = self.call(at, "_?_:_", vec![has_value, some, none]);
        self.bind(at, TARGET, target, chosen)
    }

    /// Binds a value to a name for one expression, so that it is evaluated only once.
    fn bind(&mut self, at: usize, name: &str, value: Expr, body: Expr) -> Expr {
        let range = self.expr(at, Kind::List(Vec::new()));
        let condition = self.literal(at, Literal::Bool(false));
        let step = self.ident(at, name);
        let fold = Fold {
            var: "#unused".into(),
            var2: None,
            range,
            accu: name.into(),
            init: value,
            condition,
            step,
            result: body,
        };
        self.expr(at, Kind::Fold(Box::new(fold)))
    }
}

/// The tokens expected in place of a field's name.
const NO_FIELD: &str = "Syntax error: no viable alternative at input '.";

/// Keywords. Unlike other reserved words, they cannot name fields.
const KEYWORDS: [&str; 4] = ["true", "false", "null", "in"];

/// As in v1.34, names in backquotes are recognized but not enabled.
fn unsupported_quote(at: usize) -> Mistake {
    Mistake { at, message: "unsupported syntax: '`'".into() }
}

/// Whether a token starts an expression.
fn starts_expression(token: &Token) -> bool {
    match token {
        Token::Ident(name) => name != "in",
        Token::Symbol(symbol) => matches!(*symbol, "[" | "{" | "(" | "." | "-" | "!"),
        Token::Quoted | Token::End => false,
        _ => true,
    }
}
