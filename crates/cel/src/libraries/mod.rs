//! The implementations of functions. Types are checked beforehand, but dynamic values may still not match. The error is
//! then that there is no such overload.

mod conversions;
mod formats;
mod formatted;
mod graph_format;
mod graphs;
mod lists;
mod md5;
mod network;
mod operators;
mod optionals;
mod quantities;
pub(super) mod semver;
pub(super) mod strings;
mod times;
pub(super) mod url;

use super::eval::EvalError;
use super::value::Val;

pub(super) use lists::insert;

type Outcome = Result<Val, EvalError>;
/// A library. Returns `None` for functions of other libraries.
type Library = fn(&str, &[Val]) -> Option<Outcome>;

fn failed(why: impl Into<String>) -> EvalError {
    EvalError::Failed(why.into())
}

/// Calls a function. The target of a method is the first argument.
pub(super) fn call(function: &str, is_method: bool, args: &[Val]) -> Outcome {
    if let (true, Some(Val::Foreign(foreign))) = (is_method, args.first()) {
        return foreign.call(function, &args[1..]).map_err(EvalError::Failed);
    }
    let libraries: [Library; 11] = [
        operators::call,
        conversions::call,
        strings::call,
        lists::call,
        optionals::call,
        times::call,
        network::call,
        quantities::call,
        url::call,
        semver::call,
        graphs::call,
    ];
    for library in libraries {
        if let Some(outcome) = library(function, args) {
            return outcome;
        }
    }
    formats::call(function, args).unwrap_or_else(|| Err(EvalError::no_overload()))
}
