//! Converts between the store's types and etcd's messages.

use setpoint_store::Revision;
use setpoint_store::etcd::{Compare, KeyValue, Op, RangeRequest, RangeResponse, Txn, TxnResponse};

use crate::messages::{self, Compared, Request, RequestOp, ResponseHeader, TARGET_MOD, TARGET_VERSION};

/// etcd counts with signed numbers. It never gets beyond them: at a million changes a second, after 292,000 years.
pub(crate) fn signed(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

pub(crate) fn unsigned(number: i64) -> u64 {
    u64::try_from(number).unwrap_or(0)
}

fn revision(header: Option<ResponseHeader>) -> Revision {
    header.map_or(0, |header| unsigned(header.revision))
}

pub(crate) fn key_value(kv: messages::KeyValue) -> KeyValue {
    let messages::KeyValue { key, create_revision, mod_revision, version, value } = kv;
    let (created, modified) = (unsigned(create_revision), unsigned(mod_revision));
    KeyValue { key, value, created, modified, version: unsigned(version) }
}

pub(crate) fn range(request: RangeRequest) -> messages::RangeRequest {
    messages::RangeRequest {
        key: request.key,
        range_end: request.end.unwrap_or_default(),
        limit: i64::try_from(request.limit).unwrap_or(i64::MAX),
        revision: signed(request.revision.unwrap_or(0)),
        count_only: request.count_only,
    }
}

pub(crate) fn ranged(response: messages::RangeResponse) -> RangeResponse {
    RangeResponse {
        revision: revision(response.header),
        kvs: response.kvs.into_iter().map(key_value).collect(),
        more: response.more,
        count: usize::try_from(response.count).unwrap_or(0),
    }
}

pub(crate) fn txn(txn: Txn) -> messages::TxnRequest {
    let (target, key, compared) = match txn.compare {
        Compare::Modified { key, revision } => (TARGET_MOD, key, Compared::ModRevision(signed(revision))),
        Compare::Version { key, version } => (TARGET_VERSION, key, Compared::Version(signed(version))),
    };
    let then = match txn.then {
        Op::Put { key, value, lease } => Request::Put(messages::PutRequest { key, value, lease }),
        Op::Delete { key } => Request::DeleteRange(messages::DeleteRangeRequest { key }),
    };
    let read = |key| Request::Range(messages::RangeRequest { key, ..messages::RangeRequest::default() });
    let op = |request| RequestOp { request: Some(request) };
    messages::TxnRequest {
        compare: vec![messages::Compare { target, key, compared: Some(compared) }],
        success: vec![op(then)],
        failure: txn.otherwise.into_iter().map(read).map(op).collect(),
    }
}

pub(crate) fn txn_done(response: messages::TxnResponse) -> TxnResponse {
    let read = response.responses.into_iter().filter_map(|response| response.range);
    let found = read.flat_map(|read| read.kvs).next().map(key_value);
    TxnResponse {
        revision: revision(response.header),
        succeeded: response.succeeded,
        found: found.filter(|_| !response.succeeded),
    }
}
