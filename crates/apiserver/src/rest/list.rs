//! Lists: choice of revision, paging, and encoding from stored bytes.

use std::sync::Arc;
use std::time::Duration;

use base64::Engine;
use base64::alphabet::URL_SAFE;
use base64::engine::general_purpose::{GeneralPurpose, NO_PAD, URL_SAFE_NO_PAD};
use http::{Response, StatusCode};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use setpoint_store::{Error, Range, Record, Revision, just_after};

use super::list_body::{self, Frame, PIECE_ITEMS, WriteItem};
use super::{Call, respond};
use crate::body::Body;
use crate::codec::{document_bytes, to_bytes};
use crate::json::JsonMut;
use crate::negotiate::{Encoding, Output, Shape};
use crate::options::{ListOptions, VersionMatch};
use crate::protobuf;
use crate::registry::Served;
use crate::schema::syntax;
use crate::selector::{ParsedSelection, SLICE};
use crate::status::Status;
use crate::transform::{self, TableOptions};

/// Maximum number of records per read for a page with a selector, as in v1.34: 80 KB of pointers.
const MAX_READ: usize = 10_000;

/// How long a read waits for a revision that has not been seen yet, as in v1.34.
const FRESHNESS_WAIT: Duration = Duration::from_secs(3);

/// The result of a list.
#[derive(Clone)]
pub(crate) struct ListResult {
    pub(crate) records: Vec<Arc<Record>>,
    pub(crate) revision: Revision,
    /// The continue token for the next page; empty if there is none.
    pub(crate) continue_token: String,
    pub(crate) remaining: Option<usize>,
}

pub(crate) async fn list(call: &Call<'_>) -> Result<Response<Body>, Status> {
    let options = ListOptions::parse(call.query, call.namespace, false)?;
    let choice = choose(call, &options)?;
    let found = find(call, &options, &choice).await?;
    respond(call, found).await
}

/// Parses the selectors of a list or watch, including a name in the path.
pub(crate) fn choose(call: &Call<'_>, options: &ListOptions) -> Result<ParsedSelection, Status> {
    let mut choice = options.selection.parse(call.served)?;
    if let Some(name) = call.name {
        if !choice.fields.is_everything() && choice.fields.exact_name() != Some(name) {
            return Err(Status::bad_request("fieldSelector metadata.name doesn't match requested name"));
        }
        if choice.fields.is_everything() {
            choice.fields = crate::selector::FieldSelector::name(name);
        }
    }
    Ok(choice)
}

/// Responds with a list in the form the client asked for.
pub(crate) async fn respond(call: &Call<'_>, found: ListResult) -> Result<Response<Body>, Status> {
    if call.context.audit.wants_response() {
        record(call, found.clone()).await?;
    }
    shown(call, call.output, found).await
}

/// Records the list in the audit event: in the shape that the client gets, as JSON.
async fn record(call: &Call<'_>, found: ListResult) -> Result<(), Status> {
    let output = Output { encoding: Output::JSON.encoding, ..call.output };
    let whole = shown(call, output, found).await?.into_body().collect().await;
    call.context.audit.response_bytes(&whole);
    Ok(())
}

async fn shown(call: &Call<'_>, output: Output, found: ListResult) -> Result<Response<Body>, Status> {
    if output.is_plain() {
        return Ok(plain(call.served, found));
    }
    let metadata =
        transform::list_metadata(&found.revision.to_string(), Some(&found.continue_token), found.remaining);
    if output.encoding == Encoding::Protobuf && output.shape != Shape::Table {
        return in_protobuf(call, &metadata, &found.records).await;
    }
    let document = document(call, metadata, Vec::new())?;
    if found.records.is_empty() || output.encoding == Encoding::Protobuf {
        return Ok(respond::document(StatusCode::OK, output, &document));
    }
    let options = table_options(call)?;
    let records = sorted_rows(call, found.records).await;
    let body = list_body::shaped(call.served, output, options, document, records, call.now)
        .ok_or_else(|| Status::internal("a list has no place for its items"))?;
    Ok(respond::response(StatusCode::OK, output.encoding.media_type(), body))
}

async fn in_protobuf(
    call: &Call<'_>,
    metadata: &Value,
    records: &[Arc<Record>],
) -> Result<Response<Body>, Status> {
    // Rejects unsupported shapes first.
    document(call, Value::Null, Vec::new())?;
    let is_partial = call.output.shape == Shape::PartialMetadataList;
    let body = match is_partial {
        true => protobuf::partial_records(call.served, call.output, metadata, records).await?,
        false => protobuf::list(call.served, metadata, records).await?,
    };
    Ok(respond::response(StatusCode::OK, call.output.encoding.media_type(), body))
}

fn table_options(call: &Call<'_>) -> Result<TableOptions, Status> {
    match call.output.shape {
        Shape::Table => TableOptions::parse(call.query),
        _ => Ok(TableOptions::default()),
    }
}

/// Sorts records into the row order of a table.
async fn sorted_rows(call: &Call<'_>, records: Vec<Arc<Record>>) -> Vec<Arc<Record>> {
    let rank = match call.served.kind.presentation.row_order {
        Some(rank) if call.output.shape == Shape::Table => rank,
        _ => return records,
    };
    let mut sorted_rows = Vec::with_capacity(records.len());
    for (at, record) in records.into_iter().enumerate() {
        if at > 0 && at.is_multiple_of(PIECE_ITEMS) {
            tokio::task::yield_now().await;
        }
        let object = call.served.decode_bare(&record).unwrap_or_default();
        sorted_rows.push((rank(&object), record));
    }
    sorted_rows.sort_by_key(|(rank, _)| *rank);
    sorted_rows.into_iter().map(|(_, record)| record).collect()
}

/// Builds a list of objects in the shape that the client asked for.
pub(crate) fn shaped(
    call: &Call<'_>,
    metadata: Value,
    objects: Vec<Value>,
) -> Result<Response<Body>, Status> {
    document(call, metadata, objects).map(|list| respond::document(StatusCode::OK, call.output, &list))
}

fn document(call: &Call<'_>, metadata: Value, objects: Vec<Value>) -> Result<Value, Status> {
    Ok(match call.output.shape {
        Shape::Table => {
            let options = TableOptions::parse(call.query)?;
            transform::table(call.served, call.output, &options, metadata, objects, call.now)
        }
        Shape::PartialMetadataList => transform::partial_list(call.served, call.output, metadata, objects),
        Shape::PartialMetadata => {
            let message = "you requested PartialObjectMetadata, but the requested object is a list";
            return Err(Status::not_acceptable(format!("{message} ({}List)", call.served.kind.go_type())));
        }
        Shape::Object => transform::list(call.served, metadata, objects),
    })
}

/// Lists of up to this many records get a content length: computing it visits every record.
const MEASURED: usize = 4096;

/// Streams a list, copying the stored bytes of its objects while the client reads.
fn plain(served: &Arc<Served>, found: ListResult) -> Response<Body> {
    let mut metadata =
        transform::list_metadata(&found.revision.to_string(), Some(&found.continue_token), found.remaining);
    if served.kind.custom.is_some() {
        metadata.or_insert("continue", "");
    }
    let frame = list_frame(served, &metadata);
    let length = match found.records.len() {
        0..=MEASURED => length(served, &frame, &found.records),
        _ => None,
    };
    let written = served.clone();
    let write: WriteItem = Box::new(move |record, into| written.write_item(record, into));
    let body = list_body::body(frame, found.records, write, length);
    respond::response(StatusCode::OK, "application/json", body)
}

fn length(served: &Served, frame: &Frame, records: &[Arc<Record>]) -> Option<u64> {
    let items: Option<usize> = records.iter().map(|record| served.item_length(record)).sum();
    let commas = records.len().saturating_sub(1);
    items.map(|items| (frame.head.len() + items + commas + frame.tail.len()) as u64)
}

/// Returns the text before and after the items. Lists of custom resources have sorted keys, so their metadata comes
/// last.
fn list_frame(served: &Served, metadata: &Value) -> Frame {
    let kind = &served.kind;
    let (list_kind, api_version) = (kind.list_kind(), kind.api_version());
    if kind.custom.is_some() {
        let head = format!(r#"{{"apiVersion":{api_version:?},"items":["#);
        let tail = format!(r#"],"kind":"{list_kind}","metadata":{metadata}}}"#);
        return Frame::plain(head.into_bytes(), tail.into_bytes());
    }
    let list = json!({"kind": list_kind, "apiVersion": api_version, "metadata": metadata, "items": []});
    let mut head = document_bytes(&list).to_vec();
    // The brackets around the items.
    head.truncate(head.len() - "]}".len());
    Frame::plain(head, b"]}".to_vec())
}

/// Reads the state that the options ask for.
pub(crate) async fn find(
    call: &Call<'_>,
    options: &ListOptions,
    choice: &ParsedSelection,
) -> Result<ListResult, Status> {
    let range = choice.range(call.served);
    let mut start = Start::of(options, &range.prefix, selects_single_object(call, choice))?;
    match start.not_older_than {
        Some(revision) => wait_for(call, revision).await?,
        None => start.at = call.latest().await?,
    }
    // Any state is acceptable: v1.34 then ignores the limit and returns its whole cache, or everything after a token.
    let is_any = options.resource_version == "0";
    let limit = if is_any { 0 } else { usize::try_from(options.limit).unwrap_or(0) };
    read(call, choice, &range, &start, limit).await
}

/// Converts a store error to the response to a list.
fn refused(call: &Call<'_>, range: &Range, start: &Start, why: Error) -> Status {
    match (why, &start.from) {
        (Error::Compacted { .. }, Some(from)) => {
            Status::expired_continue(Token::new(&range.prefix, from, -1, None).encode())
        }
        (Error::Compacted { requested, oldest }, None) => {
            tracing::debug!(requested, oldest, "list at a compacted revision");
            Status::expired("The resourceVersion for the provided list is too old.")
        }
        (other, _) => call.server.refusal(other),
    }
}

/// Whether a list selects a single object by namespace and name: v1.34 reads that object instead.
fn selects_single_object(call: &Call<'_>, choice: &ParsedSelection) -> bool {
    let is_placed = choice.namespace.is_some() || !call.served.kind.is_namespaced();
    is_placed && choice.fields.exact_name().is_some()
}

async fn read(
    call: &Call<'_>,
    choice: &ParsedSelection,
    range: &Range,
    start: &Start,
    limit: usize,
) -> Result<ListResult, Status> {
    let store = &call.server.store;
    let refused = |why| refused(call, range, start, why);
    let is_everything = choice.is_everything();
    // With a selector, only whether more records follow matters, not how many.
    let before = if is_everything { start.before } else { Some(0) };
    let mut options = setpoint_store::ListOptions { at: start.at, limit, from: start.from.clone(), before };
    let mut page = store.list(range, options.clone()).await.map_err(refused)?;
    page.records = call.all_shown(page.records).await?;
    let revision = page.revision;
    if is_everything {
        let before = if start.from.is_none() { Some(0) } else { start.before };
        let before = before.map(|before| before.saturating_add(page.records.len()));
        let continue_token = continuation(&range.prefix, &page.records, page.remaining, revision, before);
        let remaining = (page.remaining > 0).then_some(page.remaining);
        return Ok(ListResult { records: page.records, revision, continue_token, remaining });
    }
    // With a selector, reads on until the page is full, all at one revision.
    options.at = Some(revision);
    let mut records = Vec::new();
    loop {
        let last = page.records.last().cloned();
        for (at, record) in page.records.iter().enumerate() {
            if at > 0 && at.is_multiple_of(SLICE) {
                tokio::task::yield_now().await;
            }
            if !choice.matches(record, call.served) {
                continue;
            }
            records.push(record.clone());
            if limit > 0 && records.len() == limit {
                let more = page.remaining + page.records.len() - at - 1;
                let continue_token = continuation(&range.prefix, &records, more, revision, None);
                return Ok(ListResult { records, revision, continue_token, remaining: None });
            }
        }
        match last {
            Some(last) if page.remaining > 0 => options.from = Some(just_after(&last.key.path)),
            _ => return Ok(ListResult { records, revision, continue_token: String::new(), remaining: None }),
        }
        call.check_awaited()?;
        options.limit = next_limit(options.limit);
        page = store.list(range, options.clone()).await.map_err(refused)?;
        page.records = call.all_shown(page.records).await?;
    }
}

/// Returns how many records to read next for a page with a selector. Doubles, as in v1.34: a narrow selector takes few
/// reads, and a broad one reads little more than it needs.
fn next_limit(limit: usize) -> usize {
    limit.saturating_mul(2).min(MAX_READ.max(limit))
}

fn continuation(
    prefix: &str,
    records: &[Arc<Record>],
    remaining: usize,
    revision: Revision,
    before: Option<usize>,
) -> String {
    match records.last() {
        Some(last) if remaining > 0 => {
            let revision = i64::try_from(revision).unwrap_or(i64::MAX);
            Token::new(prefix, &just_after(&last.key.path), revision, before).encode()
        }
        _ => String::new(),
    }
}

/// The revision of a list, and where it starts.
#[derive(Debug, Default)]
struct Start {
    at: Option<Revision>,
    from: Option<String>,
    /// How many records precede `from`, if the token says so.
    before: Option<usize>,
    not_older_than: Option<Revision>,
}

impl Start {
    fn of(options: &ListOptions, prefix: &str, selects_single_object: bool) -> Result<Self, Status> {
        let version = options.resource_version.as_str();
        if !options.continue_token.is_empty() {
            let token = Token::decode(&options.continue_token)
                .map_err(|why| Status::bad_request(format!("invalid continue token: {why}")))?;
            if !matches!(version, "" | "0") {
                return Err(Status::bad_request(
                    "specifying resource version is not allowed when using continue",
                ));
            }
            // A negative revision means the latest.
            let at = Revision::try_from(token.revision).ok();
            let from = Some(format!("{prefix}{}", token.start.trim_start_matches('/')));
            return Ok(Self { at, from, before: token.before, not_older_than: at });
        }
        let named = parse_revision(version).map_err(bad_list_revision)?;
        let is_exact = match options.version_match {
            Some(VersionMatch::Exact) => true,
            Some(VersionMatch::NotOlderThan) => false,
            // If unspecified, a paged list at a version is exact.
            None => options.limit > 0 && !selects_single_object && named.is_some_and(|revision| revision > 0),
        };
        Ok(if is_exact {
            Self { at: named, not_older_than: named, ..Self::default() }
        } else {
            Self { not_older_than: named, ..Self::default() }
        })
    }
}

pub(crate) fn bad_list_revision(why: String) -> Status {
    Status::bad_request(format!("invalid resource version: {why}"))
}

/// Parses a resource version; `None` if empty.
pub(crate) fn parse_revision(text: &str) -> Result<Option<Revision>, String> {
    if text.is_empty() {
        return Ok(None);
    }
    let problem = match text.parse::<u64>() {
        Ok(revision) if !text.starts_with('+') => return Ok(Some(revision)),
        Err(_) if text.bytes().all(|byte| byte.is_ascii_digit()) => "value out of range",
        _ => "invalid syntax",
    };
    Err(format!("resourceVersion: Invalid value: {text:?}: strconv.ParseUint: parsing {text:?}: {problem}"))
}

/// Waits briefly for a revision that this server has not seen yet.
pub(crate) async fn wait_for(call: &Call<'_>, revision: Revision) -> Result<(), Status> {
    const STEP: Duration = Duration::from_millis(50);
    let server = call.server;
    if server.store.revision() < revision {
        // Another server may have taken it. If so, this server has seen it afterwards, or learns that there is more.
        call.latest().await?;
    }
    let mut waited = Duration::ZERO;
    while server.store.revision() < revision {
        if waited >= FRESHNESS_WAIT {
            return Err(Status::too_large_resource_version(revision, server.store.revision()));
        }
        server.clock.sleep(STEP).await;
        call.check_awaited()?;
        waited += STEP;
    }
    Ok(())
}

const TOKEN_VERSION: &str = "meta.k8s.io/v1";

/// A continue token.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(default)]
struct Token {
    #[serde(rename = "v")]
    version: String,
    /// -1 means the latest.
    #[serde(rename = "rv")]
    revision: i64,
    /// The first path that may follow, relative to the listed prefix.
    start: String,
    /// How many records precede it. Not in v1.34's tokens.
    #[serde(skip_serializing_if = "Option::is_none")]
    before: Option<usize>,
}

/// Like Go, accepts trailing bits in the last character, but neither padding nor another alphabet.
const LENIENT: GeneralPurpose = GeneralPurpose::new(&URL_SAFE, NO_PAD.with_decode_allow_trailing_bits(true));

impl Token {
    fn new(prefix: &str, from: &str, revision: i64, before: Option<usize>) -> Self {
        let start = from.strip_prefix(prefix).unwrap_or(from).to_owned();
        Self { version: TOKEN_VERSION.into(), revision, start, before }
    }

    fn encode(&self) -> String {
        URL_SAFE_NO_PAD.encode(to_bytes(self))
    }

    fn decode(text: &str) -> Result<Self, String> {
        let bytes = LENIENT.decode(text).map_err(|why| format!("continue key is not valid: {why}"))?;
        syntax::check(&bytes).map_err(|why| format!("continue key is not valid: {why}"))?;
        let token: Self =
            serde_json::from_slice(&bytes).map_err(|why| format!("continue key is not valid: {why}"))?;
        if token.version != TOKEN_VERSION {
            return Err(format!(
                "continue key is not valid: server does not recognize this encoded version {}",
                token.version
            ));
        }
        if token.revision == 0 {
            return Err(format!(
                "continue key is not valid: incorrect encoded start resourceVersion (version {TOKEN_VERSION})"
            ));
        }
        if token.start.is_empty() {
            return Err(format!(
                "continue key is not valid: encoded start key empty (version {TOKEN_VERSION})"
            ));
        }
        if !is_clean(&token.start) {
            return Err(format!("continue key is not valid: {}", token.start));
        }
        Ok(token)
    }
}

/// Whether a path has no empty, `.` or `..` segments; a leading slash is ignored.
fn is_clean(path: &str) -> bool {
    let path = path.strip_prefix('/').unwrap_or(path);
    path.is_empty() || path.split('/').all(|part| !matches!(part, "" | "." | ".."))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn refused(json: &str, why: &str) {
        let refused = Token::decode(&URL_SAFE_NO_PAD.encode(json)).unwrap_err();
        assert_eq!(refused, format!("continue key is not valid: {why}"));
    }

    #[test]
    fn a_crafted_token_does_not_leave_its_prefix() {
        let with = |start: &str| format!(r#"{{"v":"meta.k8s.io/v1","rv":1,"start":"{start}"}}"#);
        for start in ["../a", "a/../b", "a//b", "a/", "//a", "."] {
            refused(&with(start), start);
        }
        for start in ["a", "/a", "a/b", "..a", "a\\u0000"] {
            Token::decode(&URL_SAFE_NO_PAD.encode(with(start))).unwrap();
        }
        refused(r#"{"v":"v2","rv":1,"start":"a"}"#, "server does not recognize this encoded version v2");
        let empty = "encoded start key empty (version meta.k8s.io/v1)";
        refused(r#"{"v":"meta.k8s.io/v1","rv":1}"#, empty);
        let zero = "incorrect encoded start resourceVersion (version meta.k8s.io/v1)";
        refused(r#"{"v":"meta.k8s.io/v1","start":"a"}"#, zero);
        assert!(Token::decode("e30=").is_err());
    }
}
