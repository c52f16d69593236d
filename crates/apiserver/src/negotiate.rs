//! Content negotiation: the response's form and the body's format.

use http::HeaderMap;
use http::header::{ACCEPT, CONTENT_TYPE, USER_AGENT};

use crate::header;
use crate::query::Query;
use crate::status::Status;

/// The encoding of a response.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Encoding {
    Json { pretty: bool },
    Yaml,
    Protobuf,
}

impl Encoding {
    pub(crate) fn media_type(self) -> &'static str {
        match self {
            Self::Json { .. } => "application/json",
            Self::Yaml => "application/yaml",
            Self::Protobuf => "application/vnd.kubernetes.protobuf",
        }
    }
}

/// The shape that an object is converted to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Shape {
    Object,
    Table,
    PartialMetadata,
    PartialMetadataList,
}

/// The form of response that the client asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Output {
    pub encoding: Encoding,
    pub shape: Shape,
    /// Whether `meta.k8s.io/v1beta1` was requested instead of `v1`.
    pub beta: bool,
}

impl Output {
    pub(crate) const JSON: Self =
        Self { encoding: Encoding::Json { pretty: false }, shape: Shape::Object, beta: false };

    /// Whether the stored bytes can be the response.
    pub(crate) fn is_plain(self) -> bool {
        self == Self::JSON
    }

    pub(crate) fn meta_version(self) -> &'static str {
        if self.beta { "meta.k8s.io/v1beta1" } else { "meta.k8s.io/v1" }
    }
}

const OBJECT_TYPES: &str = "application/json, application/yaml, application/vnd.kubernetes.protobuf";
const LIST_TYPES: &str = "application/json, application/yaml, application/vnd.kubernetes.protobuf, \
     application/json;stream=watch, application/vnd.kubernetes.protobuf;stream=watch";

/// A clause of an Accept header.
pub(crate) struct Clause<'a> {
    pub(crate) kind: &'a str,
    pub(crate) subkind: &'a str,
    pub(crate) quality: f32,
    pub(crate) parameters: Vec<(&'a str, &'a str)>,
}

impl<'a> Clause<'a> {
    pub(crate) fn parse(text: &'a str) -> Self {
        let mut parts = text.split(';').map(str::trim);
        let media = parts.next().unwrap_or("");
        let (kind, subkind) = media.split_once('/').unwrap_or((media, if media == "*" { "*" } else { "" }));
        let mut clause =
            Self { kind: kind.trim(), subkind: subkind.trim(), quality: 1.0, parameters: Vec::new() };
        for (name, value) in parts.filter_map(|part| part.split_once('=')) {
            let (name, value) = (name.trim(), value.trim());
            match name {
                // An invalid number has the lowest quality.
                "q" => clause.quality = value.parse().unwrap_or(0.0),
                _ => clause.parameters.push((name, value)),
            }
        }
        clause
    }

    pub(crate) fn parameter(&self, name: &str) -> Option<&str> {
        self.parameters.iter().find(|(candidate, _)| *candidate == name).map(|(_, value)| *value)
    }

    pub(crate) fn accepts(&self, subkind: &str) -> bool {
        match (self.kind, self.subkind) {
            ("*", "*") | ("application", "*") => true,
            ("application", wanted) => wanted == subkind,
            _ => false,
        }
    }

    fn goes_before(&self, other: &Self) -> bool {
        self.quality > other.quality
            || self.kind != "*" && other.kind == "*"
            || self.subkind != "*" && other.subkind == "*"
    }

    /// Whether it names a media type of objects, or a wildcard.
    fn is_known(&self) -> bool {
        match (self.kind, self.subkind) {
            ("*", "*") => true,
            ("application", subkind) => ["json", "yaml", "vnd.kubernetes.protobuf"].contains(&subkind),
            _ => false,
        }
    }

    /// Returns the encoding it asks for, if objects support it.
    pub(crate) fn encoding(&self, pretty: bool) -> Option<Encoding> {
        match self {
            clause if clause.accepts("json") => {
                Some(Encoding::Json { pretty: pretty || clause.parameter("pretty") == Some("1") })
            }
            clause if clause.accepts("yaml") => Some(Encoding::Yaml),
            clause if clause.accepts("vnd.kubernetes.protobuf") => Some(Encoding::Protobuf),
            _ => None,
        }
    }

    fn shape(&self) -> Option<(Shape, bool)> {
        let (Some(kind), group, version) = (self.parameter("as"), self.parameter("g"), self.parameter("v"))
        else {
            let asks_nothing = self.parameter("g").is_none() && self.parameter("v").is_none();
            return asks_nothing.then_some((Shape::Object, false));
        };
        let beta = match (group, version) {
            (Some("meta.k8s.io"), Some("v1")) => false,
            (Some("meta.k8s.io"), Some("v1beta1")) => true,
            _ => return None,
        };
        let shape = match kind {
            "Table" => Shape::Table,
            "PartialObjectMetadata" => Shape::PartialMetadata,
            "PartialObjectMetadataList" => Shape::PartialMetadataList,
            _ => return None,
        };
        Some((shape, beta))
    }
}

/// Returns the clauses of the Accept header, most preferred first; none without the header.
pub(crate) fn clauses(headers: &HeaderMap) -> Vec<Clause<'_>> {
    let header = header::text(headers, &ACCEPT);
    let mut clauses: Vec<_> =
        header.split(',').map(str::trim).filter(|clause| !clause.is_empty()).map(Clause::parse).collect();
    sort(&mut clauses);
    clauses
}

/// Up to this many clauses Go uses insertion sort, whose order of incomparable clauses is known.
const INSERTION_SORT_MAX: usize = 12;

/// Sorts as v1.34 does: by quality, but wildcards follow named types, whatever their quality.
fn sort(clauses: &mut [Clause<'_>]) {
    if clauses.len() > INSERTION_SORT_MAX {
        return clauses.sort_by(|a, b| b.quality.total_cmp(&a.quality));
    }
    for end in 1..clauses.len() {
        let mut at = end;
        while at > 0 && clauses[at].goes_before(&clauses[at - 1]) {
            clauses.swap(at, at - 1);
            at -= 1;
        }
    }
}

/// Checks that this path offers any form that the client accepts.
pub(crate) fn check_accept(headers: &HeaderMap, is_list: bool) -> Result<(), Status> {
    let wanted = clauses(headers);
    if wanted.is_empty() || wanted.iter().any(Clause::is_known) {
        return Ok(());
    }
    Err(Status::no_representation(if is_list { LIST_TYPES } else { OBJECT_TYPES }))
}

/// Like [`check_accept`], for a text path such as logs. As in v1.34, a client that accepts nothing but text is not served
/// either, and the error does not offer text to it.
pub(crate) fn check_accept_of_text(headers: &HeaderMap) -> Result<(), Status> {
    let is_text = |clause: &Clause<'_>| (clause.kind, clause.subkind) == ("text", "plain");
    check_accept(headers, false).map_err(|_| match clauses(headers).iter().any(is_text) {
        true => no_such_object_type(),
        false => Status::no_representation(&format!("text/plain, {OBJECT_TYPES}")),
    })
}

/// Like [`check_accept`], for a path that only reads and writes JSON.
pub(crate) fn check_json(headers: &HeaderMap) -> Result<(), Status> {
    const JSON: &str = "application/json";
    if !matches!(media_type(headers), "" | "*/*" | JSON) {
        return Err(Status::unsupported_patch_type());
    }
    let clauses = clauses(headers);
    let is_json =
        |clause: &Clause<'_>| matches!((clause.kind, clause.subkind), ("*", "*") | ("application", "json"));
    let is_accepted = clauses.is_empty() || clauses.iter().any(is_json);
    if is_accepted { Ok(()) } else { Err(Status::no_representation(JSON)) }
}

/// Checks that a path of documents supports the request's content type, if it has one.
pub(crate) fn check_content_type(headers: &HeaderMap) -> Result<(), Status> {
    let mut types = content_type(headers).split(',').map(|one| one.split(';').next().unwrap_or("").trim());
    let is_known =
        |one: &str| matches!(one, "" | "*/*") || OBJECT_TYPES.split(", ").any(|known| known == one);
    if types.any(is_known) { Ok(()) } else { Err(Status::unsupported_patch_type()) }
}

/// Returns the encoding of an error response. It is never a table.
pub(crate) fn of_refusal(headers: &HeaderMap) -> Encoding {
    let wanted = clauses(headers);
    let whole = wanted.iter().filter(|clause| clause.shape() == Some((Shape::Object, false)));
    let known = whole.filter_map(|clause| clause.encoding(false)).next();
    known.unwrap_or(Encoding::Json { pretty: false })
}

/// The forms available on a path.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Forms {
    /// Custom resources do not support protobuf.
    pub objects_in_protobuf: bool,
    /// Responses that are not objects, such as reviews, have no tables.
    pub tables: bool,
}

impl Forms {
    pub(crate) const ALL: Self = Self { objects_in_protobuf: true, tables: true };
}

/// Returns the form of response that the client asked for. An unavailable form is skipped in favor of the next; there
/// are no tables in protobuf.
pub(crate) fn output(headers: &HeaderMap, query: &Query<'_>, forms: Forms) -> Result<Output, Status> {
    let wanted = clauses(headers);
    let pretty = is_pretty(headers, query);
    if wanted.is_empty() {
        return Ok(Output { encoding: Encoding::Json { pretty }, ..Output::JSON });
    }
    for clause in &wanted {
        let (Some(encoding), Some((shape, beta))) = (clause.encoding(pretty), clause.shape()) else {
            continue;
        };
        let has_form = match (encoding, shape) {
            (Encoding::Protobuf, Shape::Table) => false,
            (_, Shape::Table) => forms.tables,
            (Encoding::Protobuf, Shape::Object) => forms.objects_in_protobuf,
            _ => true,
        };
        if has_form {
            return Ok(Output { encoding, shape, beta });
        }
    }
    Err(no_such_object_type())
}

/// Builds the error if objects support none of the forms that the client accepts.
pub(crate) fn no_such_object_type() -> Status {
    Status::not_acceptable(format!("only the following media types are accepted: {OBJECT_TYPES}"))
}

pub(crate) fn is_pretty(headers: &HeaderMap, query: &Query<'_>) -> bool {
    if let Some(pretty) = query.get("pretty").filter(|value| !value.is_empty()) {
        return matches!(pretty, "1" | "t" | "T" | "true" | "TRUE" | "True");
    }
    let agent = header::text(headers, &USER_AGENT);
    ["curl", "Wget", "Mozilla/5.0"].iter().any(|prefix| agent.starts_with(prefix))
}

/// The encoding of a request's body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Input {
    Json,
    Yaml,
    Protobuf,
}

pub(crate) fn input(headers: &HeaderMap) -> Result<Input, Status> {
    let media_type = media_type(headers).to_ascii_lowercase();
    match media_type.as_str() {
        _ if !has_proper_parameters(content_type(headers)) => {}
        "" | "application/json" => return Ok(Input::Json),
        "application/yaml" => return Ok(Input::Yaml),
        "application/vnd.kubernetes.protobuf" => return Ok(Input::Protobuf),
        _ => {}
    }
    Err(Status::unsupported_media_type(OBJECT_TYPES))
}

/// Returns the content type without its parameters.
pub(crate) fn media_type(headers: &HeaderMap) -> &str {
    content_type(headers).split(';').next().unwrap_or("").trim()
}

fn content_type(headers: &HeaderMap) -> &str {
    header::text(headers, &CONTENT_TYPE)
}

/// Whether each parameter has a unique name and a value. Quoted values may contain anything.
fn has_proper_parameters(content_type: &str) -> bool {
    if content_type.contains('"') {
        return true;
    }
    let rest = content_type.trim_end().trim_end_matches(';');
    let names: Vec<_> = rest.split(';').skip(1).map(|parameter| parameter.trim().split_once('=')).collect();
    names.iter().enumerate().all(|(at, named)| {
        let repeats = |(name, _): &(&str, &str)| {
            names[..at].iter().flatten().any(|(earlier, _)| earlier.eq_ignore_ascii_case(name))
        };
        let is_word = |text: &str| !text.is_empty() && !text.contains(char::is_whitespace);
        named.is_some_and(|named| is_word(named.0) && is_word(named.1) && !repeats(&named))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn accept(header: &str, forms: Forms) -> Result<Output, u16> {
        let mut headers = HeaderMap::new();
        headers.insert(ACCEPT, header.parse().unwrap());
        output(&headers, &Query::default(), forms).map_err(|status| status.code)
    }

    #[test]
    fn the_preferred_supported_encoding_is_chosen() {
        let table = Output { shape: Shape::Table, ..Output::JSON };
        for (header, expected) in [
            ("application/json", Ok(Output::JSON)),
            ("*/*", Ok(Output::JSON)),
            ("*/*,application/yaml", Ok(Output { encoding: Encoding::Yaml, ..Output::JSON })),
            ("*/*,application/yaml;q=0.5", Ok(Output { encoding: Encoding::Yaml, ..Output::JSON })),
            ("application/yaml;q=x,application/json;q=0.1", Ok(Output::JSON)),
            ("text/html,application/json;q=0.5", Ok(Output::JSON)),
            ("application/vnd.kubernetes.protobuf;q=0.1,application/json;q=0.9", Ok(Output::JSON)),
            (
                "application/vnd.kubernetes.protobuf,application/json",
                Ok(Output { encoding: Encoding::Protobuf, ..Output::JSON }),
            ),
            ("application/vnd.kubernetes.protobuf;as=Table;v=v1;g=meta.k8s.io", Err(406)),
            ("application/cbor", Err(406)),
            ("application/yaml", Ok(Output { encoding: Encoding::Yaml, ..Output::JSON })),
            ("application/json;as=Table;v=v1;g=meta.k8s.io,application/json", Ok(table)),
            ("application/json;as=Table;v=v2;g=meta.k8s.io,application/json", Ok(Output::JSON)),
            ("application/json;as=Nope;v=v1;g=meta.k8s.io", Err(406)),
        ] {
            assert_eq!(accept(header, Forms::ALL), expected, "{header}");
        }
    }

    #[test]
    fn a_type_that_cannot_be_read_is_not_the_default() {
        let unreadable = http::HeaderValue::from_bytes(b"application/\xff").unwrap();
        let headers = HeaderMap::from_iter([(ACCEPT, unreadable.clone()), (CONTENT_TYPE, unreadable)]);
        assert_eq!(input(&headers).unwrap_err().code, 415);
        assert_eq!(check_accept(&headers, false).unwrap_err().code, 406);
        assert_eq!(output(&headers, &Query::default(), Forms::ALL).unwrap_err().code, 406);
    }

    #[test]
    fn malformed_content_type_parameters_are_rejected() {
        for (header, expected) in [
            ("application/json", Some(Input::Json)),
            ("Application/JSON; charset=utf-8", Some(Input::Json)),
            ("application/yaml;", Some(Input::Yaml)),
            ("application/json; charset=\"utf-8; x\"", Some(Input::Json)),
            ("application/json; charset", None),
            ("application/json; charset=", None),
            ("application/json; a=b; A=c", None),
            ("text/plain", None),
        ] {
            let mut headers = HeaderMap::new();
            headers.insert(CONTENT_TYPE, header.parse().unwrap());
            assert_eq!(input(&headers).ok(), expected, "{header}");
        }
    }

    #[test]
    fn custom_resources_have_only_their_metadata_in_protobuf() {
        let partial = Output { encoding: Encoding::Protobuf, shape: Shape::PartialMetadata, ..Output::JSON };
        for (header, expected) in [
            ("application/vnd.kubernetes.protobuf,application/json", Ok(Output::JSON)),
            ("application/vnd.kubernetes.protobuf", Err(406)),
            ("application/vnd.kubernetes.protobuf;as=PartialObjectMetadata;v=v1;g=meta.k8s.io", Ok(partial)),
        ] {
            let forms = Forms { objects_in_protobuf: false, ..Forms::ALL };
            assert_eq!(accept(header, forms), expected, "{header}");
        }
    }

    #[test]
    fn tables_are_skipped_where_unsupported() {
        for (header, expected) in [
            ("application/json;as=Table;v=v1;g=meta.k8s.io", Err(406)),
            ("application/json;as=Table;v=v1;g=meta.k8s.io,application/json", Ok(Output::JSON)),
        ] {
            assert_eq!(accept(header, Forms { tables: false, ..Forms::ALL }), expected, "{header}");
        }
    }
}
