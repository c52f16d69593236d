//! Syntax: text to tokens to a tree, and the tree back to text. Names are not resolved here.

pub(crate) mod ast;
pub(crate) mod format;
pub(crate) mod lexer;
pub(crate) mod literal;
pub(crate) mod parser;
mod parser_decl;
mod parser_expr;
pub(crate) mod token;
