//! The formatter: a syntax tree as text in one layout. Parsing the result gives the same tree.

use super::ast::{
    Clause, Comprehension, Decl, DeclKind, Element, Expr, ExprKind, File, Label, Marker, Part, Selector,
};
use crate::label::quoted;

/// Writes a file.
pub(crate) fn file(file: &File) -> String {
    let mut writer = Writer { out: String::new(), indent: 0 };
    if let Some(package) = &file.package {
        writer.out.push_str(&format!("package {package}\n\n"));
    }
    for import in &file.imports {
        let name = if import.renamed { format!("{} ", import.name) } else { String::new() };
        writer.out.push_str(&format!("import {name}{}\n", quoted(&import.path)));
    }
    if !file.imports.is_empty() {
        writer.out.push('\n');
    }
    writer.decls(&file.decls);
    writer.out
}

struct Writer {
    out: String,
    indent: usize,
}

impl Writer {
    fn pad(&mut self) {
        self.out.push_str(&"\t".repeat(self.indent));
    }

    fn push(&mut self, text: &str) {
        self.out.push_str(text);
    }

    fn decls(&mut self, decls: &[Decl]) {
        for decl in decls {
            for comment in &decl.meta.comments {
                self.pad();
                self.push(&format!("//{comment}\n"));
            }
            self.pad();
            self.decl(decl);
            self.push("\n");
        }
    }

    fn decl(&mut self, decl: &Decl) {
        match &decl.kind {
            DeclKind::Field { label, marker, alias, value } => {
                if let Some(alias) = alias {
                    self.push(&format!("{alias}="));
                }
                self.label(label);
                self.push(match marker {
                    Marker::Optional => "?: ",
                    Marker::Required => "!: ",
                    Marker::None => ": ",
                });
                self.expr(value);
            }
            DeclKind::Let { name, value } => {
                self.push(&format!("let {name} = "));
                self.expr(value);
            }
            DeclKind::Embed(expr) => self.expr(expr),
            DeclKind::Comprehension(comprehension) => self.comprehension(comprehension),
            DeclKind::Ellipsis(value) => {
                self.push("...");
                if let Some(value) = value {
                    self.expr(value);
                }
            }
            DeclKind::Attribute => {}
        }
        for (index, (name, body)) in decl.meta.attributes.iter().enumerate() {
            let blank = if index == 0 && matches!(decl.kind, DeclKind::Attribute) { "" } else { " " };
            self.push(&format!("{blank}@{name}({body})"));
        }
    }

    fn label(&mut self, label: &Label) {
        match label {
            Label::Ident(name) => self.push(name),
            Label::Text(expr) => self.expr(expr),
            Label::Dynamic(alias, expr) => self.bracketed("(", alias.as_deref(), expr, ")"),
            Label::Pattern(alias, expr) => self.bracketed("[", alias.as_deref(), expr, "]"),
        }
    }

    fn bracketed(&mut self, open: &str, alias: Option<&str>, expr: &Expr, close: &str) {
        self.push(open);
        if let Some(alias) = alias {
            self.push(&format!("{alias}="));
        }
        self.expr(expr);
        self.push(close);
    }

    fn comprehension(&mut self, comprehension: &Comprehension) {
        for clause in &comprehension.clauses {
            match clause {
                Clause::For { key, value, source } => {
                    let key = key.as_ref().map(|key| format!("{key}, ")).unwrap_or_default();
                    self.push(&format!("for {key}{value} in "));
                    self.expr(source);
                }
                Clause::If(condition) => {
                    self.push("if ");
                    self.expr(condition);
                }
                Clause::Let(name, value) => {
                    self.push(&format!("let {name} = "));
                    self.expr(value);
                }
            }
            self.push(" ");
        }
        self.body(&comprehension.body);
    }

    fn body(&mut self, decls: &[Decl]) {
        if decls.is_empty() {
            return self.push("{}");
        }
        self.push("{\n");
        self.indent += 1;
        self.decls(decls);
        self.indent -= 1;
        self.pad();
        self.push("}");
    }

    fn separated(&mut self, exprs: &[Expr], separator: &str) {
        for (index, expr) in exprs.iter().enumerate() {
            if index > 0 {
                self.push(separator);
            }
            self.expr(expr);
        }
    }

    fn expr(&mut self, expr: &Expr) {
        match &expr.kind {
            ExprKind::Ident(name) => self.push(name),
            ExprKind::Null => self.push("null"),
            ExprKind::Bool(value) => self.push(&value.to_string()),
            ExprKind::Number(number) => self.push(&number.to_string()),
            ExprKind::Bottom => self.push("_|_"),
            ExprKind::Text { parts, bytes } => self.text(parts, *bytes),
            ExprKind::Struct(decls) => self.body(decls),
            ExprKind::List(elements) => self.list(elements),
            ExprKind::Unary(op, operand) => {
                self.push(op);
                self.expr(operand);
            }
            ExprKind::Binary(op, left, right) => {
                self.expr(left);
                self.push(&format!(" {op} "));
                self.expr(right);
            }
            ExprKind::And(all) => self.separated(all, " & "),
            ExprKind::Or(all) => self.separated(all, " | "),
            ExprKind::Select(base, Selector::Ident(name)) => {
                self.expr(base);
                self.push(&format!(".{name}"));
            }
            ExprKind::Select(base, Selector::Text(name)) => {
                self.expr(base);
                self.push(&format!(".{}", quoted(name)));
            }
            ExprKind::Index(base, index) => {
                self.expr(base);
                self.push("[");
                self.expr(index);
                self.push("]");
            }
            ExprKind::Slice(base, low, high) => {
                self.expr(base);
                self.push("[");
                low.iter().for_each(|low| self.expr(low));
                self.push(":");
                high.iter().for_each(|high| self.expr(high));
                self.push("]");
            }
            ExprKind::Call(function, arguments) => {
                self.expr(function);
                self.push("(");
                self.separated(arguments, ", ");
                self.push(")");
            }
            ExprKind::Paren(inner) => {
                self.push("(");
                self.expr(inner);
                self.push(")");
            }
            ExprKind::Alias(name, value) => {
                self.push(&format!("{name}="));
                self.expr(value);
            }
        }
    }

    fn list(&mut self, elements: &[Element]) {
        self.push("[");
        for (index, element) in elements.iter().enumerate() {
            if index > 0 {
                self.push(", ");
            }
            match element {
                Element::Expr(expr) => self.expr(expr),
                Element::Comprehension(comprehension) => self.comprehension(comprehension),
                Element::Ellipsis(value) => {
                    self.push("...");
                    value.iter().for_each(|value| self.expr(value));
                }
            }
        }
        self.push("]");
    }

    fn text(&mut self, parts: &[Part], bytes: bool) {
        let quote = if bytes { "'" } else { "\"" };
        self.push(quote);
        for part in parts {
            match part {
                Part::Literal(literal) if bytes => self.bytes(literal),
                Part::Literal(literal) => {
                    let text = quoted(&String::from_utf8_lossy(literal));
                    self.push(&text[1..text.len() - 1]);
                }
                Part::Expression(expr) => {
                    self.push("\\(");
                    self.expr(expr);
                    self.push(")");
                }
            }
        }
        self.push(quote);
    }

    fn bytes(&mut self, literal: &[u8]) {
        for byte in literal {
            match byte {
                b'\'' | b'\\' => self.push(&format!("\\{}", char::from(*byte))),
                b' '..=b'~' => self.out.push(char::from(*byte)),
                other => self.push(&format!("\\x{other:02x}")),
            }
        }
    }
}
