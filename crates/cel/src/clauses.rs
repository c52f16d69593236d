//! The clauses of format strings: `%s`, `%.2f`.

/// A clause, and the text after it.
pub(super) struct Clause<'t> {
    pub(super) verb: u8,
    pub(super) precision: Option<usize>,
    pub(super) rest: &'t [u8],
}

/// Maximum precision. Nothing needs more, and every digit takes memory.
const PRECISION: usize = 1000;

/// Reads the clause at the start of a string, after the percent sign. The error is v1.34's message.
pub(super) fn parse(text: &[u8]) -> Result<Clause<'_>, String> {
    let unparsed = |why: String| format!("could not parse formatting clause: {why}");
    let (precision, after) =
        precision(text).map_err(|why| unparsed(format!("error while parsing precision: {why}")))?;
    let (verb, rest) = after.split_first().ok_or_else(|| unparsed("unexpected end of string".into()))?;
    match words(*verb) {
        Some(_) => Ok(Clause { verb: *verb, precision, rest }),
        None => Err(unparsed(format!("unrecognized formatting clause \"{}\"", char::from(*verb)))),
    }
}

/// Reads a precision, if there is one: a dot and a number.
fn precision(text: &[u8]) -> Result<(Option<usize>, &[u8]), String> {
    let Some(after) = text.strip_prefix(b".") else { return Ok((None, text)) };
    let end = after.iter().position(|byte| !byte.is_ascii_digit());
    let end = end.ok_or("could not find end of precision specifier")?;
    let digits = std::str::from_utf8(&after[..end]).unwrap_or_default();
    let failed = |why: &str| {
        format!("error while converting precision to integer: strconv.Atoi: parsing {digits:?}: {why}")
    };
    match digits.parse::<i64>() {
        Ok(number) => Ok((Some(usize::try_from(number).unwrap_or(PRECISION).min(PRECISION)), &after[end..])),
        Err(_) if digits.is_empty() => Err(failed("invalid syntax")),
        Err(_) => Err(failed("value out of range")),
    }
}

/// Returns v1.34's message about a value that a clause does not format. `None` if there is no such clause.
pub(super) fn misfit(verb: u8, type_name: &str) -> Option<String> {
    let words = words(verb)?;
    Some(format!("error during formatting: {words}, was given {type_name}"))
}

fn words(verb: u8) -> Option<&'static str> {
    Some(match verb {
        b's' => {
            "string clause can only be used on strings, bools, bytes, ints, doubles, maps, lists, types, durations, \
             and timestamps"
        }
        b'd' => "decimal clause can only be used on integers",
        b'o' => "octal clause can only be used on integers",
        b'b' => "only integers and bools can be formatted as binary",
        b'f' => "fixed-point clause can only be used on doubles",
        b'e' => "scientific clause can only be used on doubles",
        b'x' | b'X' => "only integers, byte buffers, and strings can be formatted as hex",
        _ => return None,
    })
}
